/*
 * cli_log.h -- the log of a training run, as series of numbers over steps.
 *
 * Two kinds are read: JSON lines, as `ztrain --log` writes them (docs/ztrain/log.md; a line of
 * others needs "step", "current_steps" or "global_step"), and trainer_state.json of Hugging Face's
 * Trainer, whose log_history has objects with "step".  Every other key with a number, true, false
 * or "NaN", "Infinity" is a series of its name; an array of numbers is one series an entry, named
 * "key/0", "key/1"; other values are ignored.  "learning_rate" is the series "lr".
 *
 * The file is read once, in pieces.  What is damaged is counted and left out: the rest counts.
 */
#ifndef CLI_LOG_H
#define CLI_LOG_H

#include <stddef.h>
#include <stdint.h>

#define LOG_WHY 512

enum log_kind { LOG_LINES, LOG_TRAINER };

/* Values of one key; 'step' ascends. */
struct log_series {
	char *name;
	size_t n, room;
	int64_t *step;
	double *value;		/* NaN and infinities as logged */
};

struct run_log {
	char *path;		/* of the file that was read */
	enum log_kind kind;
	struct log_series *series;
	size_t nseries, room;
	uint64_t entries;	/* lines or objects with a step */
	int64_t first, last;	/* least and largest step; 0 without entries */
	/*
	 * A run that resumed logs steps again, or says "resumed".  Of two values of a step the
	 * later one in the file counts.
	 */
	uint64_t restarts;	/* entries whose step is not after that before, or "resumed" */
	uint64_t replaced;	/* values that a later one replaced */
	int torn;		/* the file ends within a line, or within the JSON */
	uint64_t torn_bytes;	/* after the last entry, of what is torn */
	uint64_t bad;		/* lines or objects that are no entries, elsewhere */
	uint64_t first_bad;	/* number of the first, from 1 */
	/* Of trainer_state.json; 0 = not said. */
	int64_t max_steps;
	double runtime;		/* train_runtime, of the last call, in seconds */
};

/*
 * Reads a log.  'path' may be a folder: its trainer_state.json, or that of its newest checkpoint-N,
 * or log.jsonl.  An empty file has no entries.  0, or -1, and 'why' (LOG_WHY bytes) says what is
 * wrong: no such file, or it is no log.
 */
int log_read(const char *path, struct run_log *out, char *why);
void log_release(struct run_log *log);

/* The series of that name, or NULL. */
const struct log_series *log_find(const struct run_log *log, const char *name);
/* Least finite value and its index; -1 if there is none. */
int64_t log_least(const struct log_series *s);
/* Sum of the finite values. */
double log_sum(const struct log_series *s);

/* ---- for log_read() and tests ---- */

/* Cuts a stream of bytes into objects; see cli_log_cut.c. */
struct log_cut;
/*
 * 'take' gets each object as text (with a NUL after its n bytes), in which bare NaN and Infinity
 * have quotes; 'whole' is 0 for one that is longer than the limit, of which 'text' is NULL.
 * 'scalar' gets keys of the outer object whose values are plain, for LOG_TRAINER, and
 * "log_history" where that list begins.
 */
struct log_taker {
	void (*take)(void *arg, const char *text, size_t n, uint64_t number);
	void (*scalar)(void *arg, const char *key, const char *value);
	void *arg;
};
struct log_cut *log_cut_new(enum log_kind kind, const struct log_taker *taker);
void log_cut_feed(struct log_cut *cut, const char *bytes, size_t n);
/*
 * Ends the stream: gives a last line without its newline, too.  Frees.  Whether something was
 * unfinished, and its bytes since the last entry.
 */
int log_cut_end(struct log_cut *cut, uint64_t *bytes_out);

#endif
