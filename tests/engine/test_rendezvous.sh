#!/bin/bash
# usage: test_rendezvous.sh
#
# Strangers at the port where ranks meet (tests/engine/stranger.py).  If this fails, anybody who reaches
# it ends a job with one packet, takes the place of a rank and is sent the parameters, or holds the
# start up by saying nothing.
#
#   strangers   of the first version, with a guess, without a word, more than are looked at, with noise:
#               the ranks meet, and the log names an address and what was wrong
#   secret      a rank by the document's tables is welcome with the secret; its words again are not;
#               another secret, none, or another size is refused, and the job keeps waiting
#   host        a rank 0 that cannot prove itself is not believed
#   where       the file of a host is its user's alone and goes; ports are open at no other address
#   files       a secret that others can read, that is short, or that is said twice, is refused
set -u
# shellcheck source=tests/engine/ztrain.sh
. "$(dirname "$0")/ztrain.sh"
command -v python3 > /dev/null || skip 'no python3 here, which plays the strangers'
stranger() { timeout -k 5 60 python3 "$root/tests/engine/stranger.py" "$@"; }
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE TORCHELASTIC_RUN_ID TORCHELASTIC_USE_AGENT_STORE ZTRAIN_SECRET ZTRAIN_SECRET_FILE
unset ZTRAIN_PORT XDG_RUNTIME_DIR
port=$((10000 + (RANDOM * 32768 + RANDOM) % 22000))
export MASTER_ADDR=127.0.0.1 MASTER_PORT=$port
# rank R N FILE [NAME=VALUE...]: one process
rank() {
	local r=$1 n=$2 file=$3
	shift 3
	# shellcheck disable=SC2016
	env PATIENCE=20 "RANK=$r" "WORLD_SIZE=$n" "$@" timeout -k 5 60 \
		sh -c '"$0" --check-launch --timeout $PATIENCE' "$ztrain" > "$file" 2>&1 < /dev/null
}
says() {
	local file=$1
	shift
	if grep -q -- "$*" "$file"; then good; else cp "$file" said; bad "no line says: $*"; fi
}
# together NAME [NAME=VALUE...]: rank 1 comes to rank 0, which is process $host and says what is in 'zero'
together() {
	local name=$1
	shift
	if rank 1 2 one "$@" && wait "$host"; then good; else cat zero one > said; bad "$name"; fi
	wait "$host"
}
# until FILE WORDS: rank 0 has said it
until_says() {
	for _ in $(seq 200); do grep -q -- "$2" "$1" 2> /dev/null && return; sleep 0.05; done
	cp "$1" said
	bad "no line says: $2"
}
# ears PORT: waits until something listens at it; 'said' has the addresses, as hexadecimal digits
ears() {
	local colon
	colon=$(printf ':%04X' "$1")
	for _ in $(seq 400); do
		awk -v p="$colon" 'FNR > 1 && $4 == "0A" && index($2, p) { print $2 }' \
			/proc/net/tcp /proc/net/tcp6 > said 2> /dev/null
		[ ! -s said ] || break
		sleep 0.05
	done
}

ZTRAIN_SECRET=correct-horse-battery-staple RANK=1 WORLD_SIZE=2 "$ztrain" --check-launch --timeout 1 > said 2>&1
! grep -q 'built without libcrypto' said || skip 'ztrain was built without libcrypto: there are no secrets'

# ---- a rank 0 that proves nothing: it has what it takes to be believed by a rank that asks for nothing
: > job
stranger job "$port" > job & fake=$!
for _ in $(seq 100); do [ "$(wc -c < job)" -ge 1 ] && break
	rank 1 2 one PATIENCE=3 && { cat one > said; bad 'a rank 0 without a proof is believed'; }
done
wait $fake
says one 'rank 0 does not answer at port'
job=$(cat job)

# ---- strangers, and the ranks that come after them
rank 0 2 zero & host=$!
stranger old "$port" 3 "$job" > old
until_says zero 'refused a connection from 127.0.0.1:[0-9]*: not a rank of ztrain'
stranger old "$port" 2 "$job" > old
together 'beside hellos of the first version'

rank 0 2 zero & host=$!
stranger guess "$port" "$job" 3 1 2 > guess
says guess 'refused: wrong secret .* not signed'
stranger guess "$port" "$job" 3 1 3 > guess
says guess 'refused: wrong secret .* not signed'
stranger guess "$port" "$job" 0 1 2 > guess
says guess 'refused: rank 1 has no secret, rank 0 has a secret file of its host'
stranger guess "$port" 1234 3 1 2 > guess
says guess 'another job'
file=$(ls /tmp/ztrain-"$(id -u)"/ztrain-"$job"-"$port" 2> said) || bad 'the secret of the host is missing'
[ "$(stat -c '%a %u' "$file" 2> said)" = "600 $(id -u)" ] && good || bad 'others get at the secret of the host'
together 'beside guesses'
until_says zero 'refused a connection from .*: wrong secret'
[ ! -e "$file" ] && good || bad 'the secret of the host is left'

rank 0 2 zero & host=$!
stranger silent "$port" 600 > silent & many=$!
until_says silent here
began=$(date +%s)
together 'beside 600 that say nothing'
[ $(($(date +%s) - began)) -lt 5 ] && good || bad 'those who say nothing hold ranks up'
kill "$(cut -d ' ' -f 2 silent)"
wait $many 2> /dev/null
[ "$(wc -l < zero)" -lt 20 ] && good || { cp zero said; bad 'a line for each stranger'; }

rank 0 2 zero & host=$!
stranger noise "$port" 300 "${ZCKPT_SEED:-1}"
together 'beside noise'

# ---- with a secret
export ZTRAIN_SECRET=correct-horse-battery-staple
rank 0 2 zero & host=$!
stranger join "$port" "$job" "$ZTRAIN_SECRET" 1 2 heard > joined
says joined 'welcome:  signed'
says joined 'book: True'
wait "$host"
rank 0 2 zero & host=$!
stranger replay "$port" heard > replay
says replay 'prove it'
says replay 'refused: wrong secret'
stranger join "$port" "$job" "$ZTRAIN_SECRET" 1 3 heard > joined
says joined 'refused: rank 1 was started as one of 3 ranks, rank 0 as one of 2 signed'
rank 1 2 two ZTRAIN_SECRET=another-secret-of-somebody PATIENCE=1 && bad 'another secret has status 0'
says two 'wrong secret'
rank 1 2 two ZTRAIN_SECRET= PATIENCE=1 && bad 'no secret has status 0'
says two 'rank 1 has a secret file of its host, rank 0 has a secret (ZTRAIN_SECRET'
together 'after wrong secrets and sizes'
says zero 'refused a connection from .*: rank 1 was started as one of 3'

# a stranger at a port before rank 0's, who passes on what comes there, does not come between two ranks
agent='TORCHELASTIC_USE_AGENT_STORE=True TORCHELASTIC_RUN_ID=none'
stranger relay $((port + 1)) $((port + 2)) > relay & between=$!
until_says relay here
# shellcheck disable=SC2086
rank 0 2 zero $agent & host=$!
ears $((port + 2))		# before that, the stranger hangs up, and rank 1 takes rank 0's own port
# shellcheck disable=SC2086
together 'beside a port that passes connections on' $agent
says zero "rank 1 connected to port $((port + 1)), but rank 0 listens at port $((port + 2)): connections are forwarded"
kill "$(cut -d ' ' -f 2 relay)"
wait $between 2> /dev/null

# ---- in a file, and by a random run id
(umask 077; head -c 32 /dev/urandom | base64 > secret)
unset ZTRAIN_SECRET
rank 0 2 zero "ZTRAIN_SECRET_FILE=$PWD/secret" & host=$!
together 'a file' "ZTRAIN_SECRET_FILE=$PWD/secret"
own="$(hostname -I 2> /dev/null | tr ' ' '\n' | grep -m 1 '^[0-9.]*$')"
id=TORCHELASTIC_RUN_ID=0a1b2c3d-1122-4333-8444-5566778899aa
rank 0 2 zero $id "MASTER_ADDR=${own:-localhost}" & host=$!
together 'a run id' $id "MASTER_ADDR=${own:-localhost}"
grep -q 'without a secret' zero && { cp zero said; bad 'a random run id is no secret'; } || good

# ---- which addresses
rank 0 2 zero & host=$!
ears "$port"
grep -q '^0100007F:' said && [ "$(wc -l < said)" = 1 ] && good || bad 'by loopback, it listens elsewhere'
together 'by loopback'
if [ -n "$own" ]; then
	rank 0 2 zero "MASTER_ADDR=$own" & host=$!
	ears "$port"
	[ "$(wc -l < said)" = 1 ] && ! grep -q '^0*:' said && good || bad "by $own, it listens elsewhere"
	together "by $own" "MASTER_ADDR=$own"
	says zero "ranks connect at $own:$port without a secret"
fi

# ---- secrets that are none
# wrong WORDS [NAME=VALUE...]
wrong() {
	local words=$1
	shift
	rank 0 2 zero "$@" && bad "status 0: $*"
	says zero "$words"
}
chmod 640 secret
wrong 'mode 640 lets other users read the secret; run: chmod 600' "ZTRAIN_SECRET_FILE=$PWD/secret"
chmod 600 secret
wrong 'both ZTRAIN_SECRET and ZTRAIN_SECRET_FILE are set' "ZTRAIN_SECRET_FILE=$PWD/secret" ZTRAIN_SECRET=correct-horse-battery-staple
wrong 'the secret has 5 bytes, expected 16 to 4096' ZTRAIN_SECRET=short
wrong 'the secret cannot be read: No such file' ZTRAIN_SECRET_FILE=none
wrong 'the secret is not a regular file' "ZTRAIN_SECRET_FILE=$PWD"

# ---- the folder of the host's secret, which another user made: without it any rank is accepted
# Of a /tmp of its own, since others here meet too.  The program may be below /tmp itself, and is
# reached by a descriptor.
if unshare -rm mount -t tmpfs none /tmp 2> said; then
	for form in 'mkdir -m 755' 'ln -s nowhere'; do
		unshare -rm sh -c 'mount -t tmpfs none /tmp && eval "$1 /tmp/ztrain-0" && RANK=0 WORLD_SIZE=2 exec /proc/self/fd/9 --check-launch --timeout 3' \
			- "$form" 9< "$ztrain" > zero 2>&1 && bad "$form: status 0"
		says zero 'expected owner 0 and mode 700'
	done
else
	echo "a folder of another user: skipped, no namespace can be made here ($(cat said))"
fi
finish
