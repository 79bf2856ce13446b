# A training file whose model is empty, {"model": {}, "optimizer": {...}}: its moments are no weights.
base64 -d << 'END' | gzip -d > bare.pt
H4sIAAAAAAACA6VVzWskRRSv+chk0vnQxHwaXb9WnbjZyXxmJ5FksHU7h8Z1jIjNwtLUdFdmeu1J
z+uuzm4WBhaWKAPiQT14EgQvguBBZFfB/yAr6E3wpF4EYfEkggeruifZ7s4mg6agKLr6/X7v96re
e1WTE0mE0ml0ZIyiKVTHNlnSMcXZ9tumJI6jy9FxM94BlFEGGKBl6cSEWAfiyhD7tNrUaBk3iA2J
DiR9E4diSmCgAykZdWAwoyS9TdKGtEYtW2tmVZcapiOoNqm7hqmrlGw7lq3uFAQYymSUQc/esnGD
gOBDBMm0MH3D3xRgWIkxmxyMKAm2am0XRuUYhbHXZbSw0NU0yzSJRg1r2xFes3ViE/0VQ6MCPLSw
CQ9TGN+ECc8Lud5W8U4DHmkyv02h6fPmYbI5KscpTDE+Ob4H03JsD2a6TQ6fpTC3CY8qwn246gDM
hxgK8JjP8HiP4QxneMJneJLCU5vwtOsoI8y0jW3cUhu25bYdeOYKnO3Asxklzv6YNjy3Ua3VX/3x
z8//8U62Tih24PmN6h/7fNzdqN776/ufpt899w5kvJMgjGNhY/3i7vu/5N5b9fivEaPRpKpONLwL
L8jIixu3nIaNdTjXVXhStPB17xZhsev93rJsgrUmnL/khanhNnVtXDcJZLvKGNvRja0tdqrb1PB2
l7qevC3XITrkLinT3IRoLCST6GpIQb6rpA6idqBwBYoywi523WxNHkz//e13s4TFzmft2KSdRHN+
0maZ0Bam6g6xHXbZkjh1NHf5yHPu2/d+vsXvhs/juWfQao+7l4EqNo3GdovFKonLD6bvO5ZLXED1
GvzO7zV+ooAxJPoC6ruUWDx5JXH9f/o9GKZBqUm4hr21X+f4+adO1DCMXrrfFZZykrh2OgEI3axy
71evfvoFbwbJPt5fDnjPS2L1lOFfvru/v8Yn13D2rYkPudN0Hw3VgIaCJL54Gg3WxK1VPrn/bz5T
Lvb3P4LWff+Hqb16CgFFgXv+4ZPGm/3zbx6VewXghe4Q22AVcAPzbqoauiTm/7uQXKW0UqpUKqUL
K8vlXKlyoVjO5fJsK1cssFkuF0ql4vLKClf55Qx8lWE6Mp7KGBd7qDPYHkaPKA+9Y1FosPonQ7Cv
4+iB3STKECzfmRDDeAId1zOiJMH6GwuRfHBAclj3UWyweoZD2OkkCtZrFBhM+TDwoxAwHwUGczUM
nB0IAgtRYDDVRkLAjw+Ax5xy8PrnQ8iJFDopMWtyKrXYMz2TOH8IG4qsi3F/vZPyV4bjTx76rSfA
fx4GUj5myLP3bf8FZy6dqEYJAAA=
END
for verb in 'convert bare.pt bare.safetensors' 'convert --dry-run bare.pt bare.safetensors' 'inspect bare.pt' \
	'doctor bare.pt' 'verify bare.pt'; do
	echo "* $verb"; zckpt $verb > out 2> err; echo "exit $?"
	cat out err | grep -o 'PLACEHOLDERS_ONLY.*'
done
ls bare.safetensors 2> /dev/null
echo '* stated, it is what the user wants'
zckpt convert -q --subtree optimizer.state bare.pt states.safetensors; echo "exit $?"; ls states.*
zckpt convert -q --subtree model bare.pt x.safetensors; echo "exit $?"; ls
zckpt convert -q --as-warning PLACEHOLDERS_ONLY bare.pt x.safetensors; echo "exit $?"
