# Sourced by setup-venv.sh and setup-venv-old.sh: what both say about pip.
#
# pip_install uses $python, the interpreter to install for; $made, the folder
# that is removed when it fails; $log, the file that what pip says goes to.
# shellcheck shell=sh disable=SC2154

# the rest of what DeepSpeed imports; any version of the last years will do
EXTRA="einops hjson msgpack ninja packaging psutil py-cpuinfo pydantic tqdm"

# what pip says when the index, or a file of it, cannot be had from here
UNREACHABLE='Could not find a version|No matching distribution|ConnectionError'
UNREACHABLE="$UNREACHABLE|NewConnection|Connection (refused|reset|broken)|timed out"
UNREACHABLE="$UNREACHABLE|Name or service|name resolution|ProxyError|SSLError|HTTP error"

skip() {
	echo "interop: skipped: $1" >&2
	exit 77
}

# pip_install ARGS...: 77 when the index cannot be reached or lacks the file
pip_install() {
	if DS_BUILD_OPS=0 DS_ACCELERATOR=cpu "$python" -m pip install -q \
		--disable-pip-version-check --retries 2 --timeout 60 "$@" \
		>>"$log" 2>&1; then
		return 0
	fi
	tail -n 5 "$log" >&2
	rm -rf "$made"
	if tail -n 40 "$log" | grep -qE "$UNREACHABLE"; then
		skip "pip cannot fetch $* (see $log)"
	fi
	echo "interop: pip failed on: $* (see $log)" >&2
	exit 1
}
