# ztrain.sh -- read by the tests of the program ztrain: where things are, what they need, a scratch
# folder that goes away, and the count of what held.
#
#   root, build, ztrain, watched, zckpt, models, mpirun    paths
#   skip WHY             the test is not run: status 77
#   need_models          the fixtures' models are there, or skip
#   has_ranks            true where there is mpirun, and ztrain has MPI
#   need_ranks           the same, or skip
#   need_watched         ztrain_watched is there (watch.h), and mpirun
#   good, bad WORDS...   counted; of what is bad the first lines of the file 'said' are shown
#   has_text WORDS TEXT...    good if the file 'said' has each of them
#   lacks_text WORDS TEXT...  good if it has none of them
#   digest FOLDER        of the step in it
#   logged NAME COMMAND  runs it: what it says is in 'said' and NAME.said, its steps in NAME.log
#   same WORDS A B       good if the last steps of runs that were logged, and what they saved, agree
#   finish               says the counts; its status is the test's
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${ZCKPT_BUILD:-$root/build}
ztrain=${ZTRAIN:-$build/ztrain}
watched=$build/tests/engine/ztrain_watched
zckpt=${ZCKPT:-$root/build/zckpt}
models=${ZCKPT_FIXTURES:-$root/build/fixtures}/model/models
mpirun=$root/tests/lib/run/mpirun
skip() { echo "$1" >&2; exit 77; }
[ -x "$ztrain" ] || skip "$ztrain is missing"
work=$(mktemp -d "${TMPDIR:-/tmp}/zckpt-$(basename "$0" .sh).XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
cd "$work" || exit 1
# Open MPI's runs share one folder in /tmp, which the last one removes while another begins.
mkdir .mpi || exit 1
export OMPI_MCA_orte_tmpdir_base="$work/.mpi" PRTE_MCA_prte_tmpdir_base="$work/.mpi"
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"	# MPI's own leaks are not ours
failed=0 passed=0

need_models() { [ -d "$models" ] || skip "$models is missing (make fixtures)"; }
has_mpirun() { command -v "${MPIRUN:-mpirun}" > /dev/null 2>&1; }
has_ranks() { has_mpirun && "$ztrain" --version | grep -q MPI; }
need_ranks() {
	has_mpirun || skip 'no mpirun here (tools/deps.sh --mpi)'
	has_ranks || skip 'ztrain was built without MPI'
}
need_watched() {
	[ "${ZCKPT_START:-mpi}" = tcp ] || has_mpirun || skip 'no mpirun here (tools/deps.sh --mpi)'
	[ -x "$watched" ] || skip "$watched is missing: built without MPI"
}
good() { passed=$((passed + 1)); }
bad() {
	failed=$((failed + 1))
	echo "FAILED $*"
	[ ! -s said ] || sed 's/^/    /' said | head -n 20
}
has_text() {
	local words=$1 text
	shift
	for text; do
		grep -qF -- "$text" said || { bad "$words: '$text' is not said"; return; }
	done
	good
}
lacks_text() {
	local words=$1 text
	shift
	for text; do
		grep -qF -- "$text" said && { bad "$words: '$text' is said"; return; }
	done
	good
}
digest() { "$zckpt" digest -q "$1" 2>&1 | tail -n 1; }
logged() {
	local name=$1 rc
	shift
	"$@" > said 2>&1
	rc=$?
	cp said "$name.said"
	grep '^step' said > "$name.log"
	return $rc
}
same() {
	local n
	n=$(wc -l < "$3.log")
	if [ "$n" -gt 0 ] && diff <(tail -n "$n" "$2.log") "$3.log" > said &&
		[ "$(digest "$2")" = "$(digest "$3")" ]; then
		good
	else
		echo "$(digest "$2"), $(digest "$3")" >> said
		bad "$1"
	fi
}
finish() {
	echo "$passed passed, $failed failed"
	[ $failed = 0 ]
}
