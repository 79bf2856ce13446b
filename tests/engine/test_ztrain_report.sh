#!/bin/bash
# usage: test_ztrain_report.sh
#
# Logs of real runs as text, as a page and as TensorBoard's files.  If this fails, a user sees a curve
# that is not the run's, a page that shows nothing or runs a name as a script, or loses a log.
#
#   log        lines of a run with 3 ranks, stopped and resumed with 2: memory of each rank, resumes
#   text       what ztrain report prints of it, of an empty log, a torn one, one with NaN
#   page       the page in a browser: every chart is drawn, keys and buttons work, no message on the
#              console, names are text
#   files      whole or absent; no log and no other file is replaced
#   events     the file of a run is replaced; names stay below the folder
set -u
# shellcheck source=tests/engine/ztrain.sh
. "$(dirname "$0")/ztrain.sh"
need_models
browser=$root/tests/lib/run/browser
model=$models/llama3

# ---- log ----

ranks() {
	if has_ranks; then
		"$mpirun" -n "$@"
	else
		shift
		"$@"
	fi
}
mkdir run || exit 1
first() { ranks 3 "$ztrain" --model "$model" --random --steps 8 --stop-at 4 --log run/log.jsonl --save run/S "$@"; }
second() { ranks 2 "$ztrain" --model "$model" --random --steps 8 --log run/log.jsonl --save run/S --resume auto "$@"; }
first > said 2>&1 && good || bad 'the first part of a run'
grep -q '^step 4/8 .* left' said && bad 'the last step of a call has no time left' || good
second > said 2>&1 && good || bad 'the second part of a run'
[ "$(grep -c '^step' said)" = 4 ] && grep -q '^step 8/8 ' said && good || bad 'four more steps'
grep -q '"resumed": true' run/log.jsonl && [ "$(grep -c '"resumed": true' run/log.jsonl)" = 1 ] &&
	sed -n 5p run/log.jsonl | grep -q '"resumed": true' && good || bad 'the resume is in its first line'
if has_ranks; then
	sed -n 1p run/log.jsonl | grep -Eq '"rank_memory_bytes": \[[1-9][0-9]*, [1-9][0-9]*, [1-9][0-9]*\]' &&
		sed -n 5p run/log.jsonl | grep -Eq '"rank_memory_bytes": \[[1-9][0-9]*, [1-9][0-9]*\]' && good ||
		bad 'memory of each rank'
fi
[ "$(grep -c '"time": [0-9]*\.[0-9][0-9][0-9]' run/log.jsonl)" = 8 ] && good || bad 'the time of each step'
"$ztrain" --model "$model" --random --steps 40 > said 2>&1
grep -Eq '^step 20/40 .* [0-9]+ s left ' said && ! grep -q '^step [123]/40 .*left' said && good ||
	bad 'the time left is in the line of a step'

# ---- text ----

report() { "$ztrain" report "$@" > said 2>&1; }
report run && good || bad 'a folder with log.jsonl'
has_text 'a run' '1-8' 'run/log' '  loss ' '  grad norm ' '  tokens/s ' '  rank memory'
grep -q ' 1  run/log$' said && good || bad 'one restart'
: > empty.jsonl
printf '{"step": 1, "loss": 2, "eval_loss": 2.5}\n{"step": 2, "loss": "NaN"}\n{"step": 3, "lo' > torn.jsonl
printf '{"step": 1, "loss": NaN}\n' > nan.jsonl
report empty.jsonl torn.jsonl nan.jsonl && good || bad 'logs of runs that came to nothing'
has_text 'an empty log' 'the log is empty'
has_text 'a torn log' '(15 bytes): the run was killed there, or is still writing' '2.5000 at 1' \
	'not a finite number at 1 of 2 steps, the first is step 2'
has_text 'NaN' 'the loss is not a finite number at any step'
report run/none.jsonl && bad 'a log that is missing' || has_text 'a log that is missing' 'run/none.jsonl: No such file'
report "$model/config.json" && bad 'a file that is no log' || has_text 'a file that is no log' 'expected the file of ztrain --log'
report && bad 'no log' || has_text 'no log' 'no log is given'

# ---- page ----

odd='a"b<img src=x onerror=document.title=1>é'
mkdir "$odd" || exit 1
printf '{"step": %d, "loss": %s, "</script><script>document.title=2</script>": 1}\n' 1 9 2 5 3 NaN > "$odd/log.jsonl"
awk 'BEGIN { for (i = 1; i <= 30000; i++) printf "{\"step\": %d, \"loss\": %s}\n", i, i == 12345 ? 777 : i == 20000 ? "NaN" : 1 }' > long.jsonl
"$ztrain" report run "$odd" long.jsonl -o page.html > said 2>&1 && good || bad 'a page'
has_text 'a page' 'wrote page.html: 3 runs'
grep -q '777' page.html && good || bad 'a peak among many points is kept'
cat > last.js <<'END_OF_SCRIPT'
(function () {
	const out = [], figures = document.querySelectorAll("figure.chart");
	const of = t => Array.from(figures).find(f => f.querySelector("h3").textContent === t);
	const loss = of("Loss"), svg = loss.querySelector("svg");
	const key = k => svg.dispatchEvent(new KeyboardEvent("keydown", {key: k, bubbles: true}));
	const read = () => loss.querySelector(".readout").textContent;
	out.push("charts " + figures.length);
	out.push("lines " + loss.querySelectorAll("path.line").length);
	out.push("lost " + loss.querySelectorAll("path.lost").length);
	const d = loss.querySelector("path.line.s2").getAttribute("d");
	out.push("thin " + (d.length < 200000));
	key("Home");
	out.push("first " + read());
	key("ArrowRight");
	out.push("next " + read().slice(0, 6));
	key("l");
	out.push("log " + loss.querySelector("button.tool[aria-pressed=true]").textContent);
	key("+");
	out.push("zoomed " + !loss.querySelector("button.tool").hidden);
	key("0");
	out.push("whole " + loss.querySelector("button.tool").hidden);
	loss.querySelectorAll(".legend button").forEach(b => b.click());
	out.push("off " + loss.querySelectorAll("path.line").length);
	out.push("title " + document.title);
	document.body.dataset.out = out.join("|");
})();
END_OF_SCRIPT
"$browser" page.html last.js > dom 2> said
case $? in
0)
	tr '|' '\n' < dom | grep -q '^lines 3$' && good || { tr '|' '\n' < dom | grep '^lines' > said; bad 'three lines'; }
	grep -o 'data-out="[^"]*' dom | tr '|' '\n' > said
	has_text 'the page in a browser' 'lost 2' 'thin true' 'first step 1' 'next step 2' 'log log scale' 'zoomed true' 'whole true' \
		'off 0' 'title Training report'
	;;
77) echo "not run: $(cat said)" ;;
*) bad 'the page in a browser' ;;
esac

# ---- files ----

sum=$(cksum < run/log.jsonl)
"$ztrain" report run -o run/log.jsonl > said 2>&1 && bad 'a log as the page' || has_text 'a log as the page' 'is one of the logs'
"$ztrain" report run -o run/log.jsonl --force > said 2>&1 && bad 'a log as the page, forced' || good
[ "$(cksum < run/log.jsonl)" = "$sum" ] && good || bad 'the log is unchanged'
echo mine > mine.html
"$ztrain" report run -o mine.html > said 2>&1 && bad 'a page over a file' || has_text 'a page over a file' 'exists and is not a report' '--force'
[ "$(cat mine.html)" = mine ] && good || bad 'the file is unchanged'
"$ztrain" report run -o mine.html --force > said 2>&1 && grep -q '</html>' mine.html && good || bad 'a page over a file, forced'
"$ztrain" report run -o - 2> said | tail -n 1 | grep -q '</html>' && good || bad 'a page on standard output'
"$ztrain" report run -o none/page.html > said 2>&1 && bad 'a folder that is missing' || has_text 'a folder that is missing' 'none/page.html'
if [ -w /dev/full ]; then
	"$ztrain" report run > /dev/full 2> said && bad 'text on a full disk' || has_text 'text on a full disk' 'No space left'
	"$ztrain" report run -o /dev/full > said 2>&1 && bad 'a page on a full disk' || has_text 'a page on a full disk' 'No space left'
fi
[ -z "$(find . -name '*.partial')" ] && good || bad 'parts of files are left over'

# ---- events ----

"$ztrain" log --tensorboard tb run > said 2>&1 && good || bad 'event files'
has_text 'event files' 'tb/run/log/events.out.tfevents.0.ztrain: 8 steps'
sum=$(cksum < tb/run/log/events.out.tfevents.0.ztrain)
"$ztrain" log --tensorboard tb run > said 2>&1 && [ "$(cksum < tb/run/log/events.out.tfevents.0.ztrain)" = "$sum" ] &&
	[ "$(find tb -type f | wc -l)" = 1 ] && good || bad 'the same call writes the same file'
mkdir -p below/here && cd below/here || exit 1
"$ztrain" log --tensorboard tb ../../torn.jsonl ../../nan.jsonl ../../run > said 2>&1 && good || bad 'logs of other folders'
cd ../.. || exit 1
[ "$(find . -name '*tfevents*' | grep -c '^./below/here/tb/')" = 3 ] && good || bad 'event files are below their folder'
"$ztrain" log run > said 2>&1 && bad 'no format' || has_text 'no format' '--tensorboard DIR is required'
finish
