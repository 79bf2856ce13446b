/* cli_doctor.h -- what doctor finds: notes, from the files (cli_doctor.c) and from opening. */
#ifndef CLI_DOCTOR_H
#define CLI_DOCTOR_H

#include "cli_advice.h"

#define MAX_NOTES 200

struct note {
	const char *id;
	enum ckpt_severity severity;
	char *where, *text, *next;	/* next: a command, or "" */
};

struct doctor {
	const struct args *args;
	const char *path;
	char *what;
	struct note note[MAX_NOTES];
	size_t n, errors;
	uint32_t world;
	int has_next;		/* a note has the next step: the last line would repeat it */
	/* of the files below */
	uint64_t pointers, empty, unreadable, remains;
	char *pointer_at, *empty_at, *unreadable_at, *remains_at;
};

/* 'text' and 'next' become the doctor's. */
void doctor_note(struct doctor *d, const char *id, enum ckpt_severity severity, const char *where,
		 char *text, char *next);
/* Looks at the file or folder without opening it as a checkpoint, and notes what it finds. */
void doctor_scan(struct doctor *d, int is_folder, uint64_t size);
/* 1 if 'why' says that the file's folder is to be given: then what that says of it is noted. */
int doctor_part(struct doctor *d, const struct ckpt_open_opts *opts, const struct ckpt_err *why);

#endif
