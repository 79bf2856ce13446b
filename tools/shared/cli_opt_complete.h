/*
 * cli_opt_complete.h -- what a shell offers for the word at the cursor, from the tables of options.
 *
 * The files of tools/completions call "PROGRAM __complete WORD...", the last word being the one
 * at the cursor.  The first line of the answer is one of the kinds below, each other line a word
 * that may be there, or that and what it is for after a tab.
 */
#ifndef CLI_OPT_COMPLETE_H
#define CLI_OPT_COMPLETE_H

#include "cli_opt.h"

/* A command line up to the cursor. */
struct typed {
	struct words rest;	/* words before the cursor that are no options or their values */
	const struct opt *opt;	/* whose value is at the cursor, or NULL */
	const char *word;	/* the beginning of the word or value at the cursor */
	const char *head;	/* what is before it in its word: "--only=frozen," */
	int is_option;		/* the beginning of an option is at the cursor */
};

/* 'argv' without the program and its command; 'tables' as of a call. */
void complete_read(const struct opt *const *tables, int argc, char **argv,
		   struct typed *typed_out);

/* The first line: only the words below it; files, or folders, too; or words without a blank. */
#define COMPLETE_WORDS "words"
#define COMPLETE_FILES "files"
#define COMPLETE_FOLDERS "folders"
#define COMPLETE_OPEN "nospace"
void complete_kind(const char *kind);
/* A line, if it continues what is typed.  'about' may be NULL. */
void complete_word(const struct typed *typed, const char *word, const char *about);

/* All lines of the options; */
void complete_options(const struct opt *const *tables, const struct typed *typed);
/* of the value of typed->opt, 1, or 0 if the table does not say what it may be. */
int complete_value(const struct typed *typed);

#endif
