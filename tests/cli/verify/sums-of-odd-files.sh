# A header states sums of files beside it: of 300 letters, hidden, in a folder, and of a FIFO.
mkdir m && base64 -d << 'END' | gzip -d > m/model.safetensors
H4sIAAAAAAACA+2STQ6CQAxG1ZOYrgnKAEP1AF7CGNJh2kAUITLGv3Avj+fowkQ36t63a/O9LprvOho8uECe1+zIkqM8h/kFpNnV
5GAOrYMAzsW6dWHJZHnnd2g40pwqzQpTZTLGJCUxGjUjxmieRrevO5+3cZrRDCMxxKTYD0WSSZHMDFJEnD3zUm04PP75Gv/c6Qde
nxuWlbW8/dmjifnZkUqab6Q+gMO9c9adWvbCIlb+UFfSfVomqwAevWxEOna+T8tpEOlV34/HwzduYz4/wtACAAA=
END
mkfifo m/fifo
zckpt verify m 2>&1; echo "exit $?"
zckpt convert -q m out 2>&1 | grep -o 'BESIDE_CHANGED: .*'; ls out
