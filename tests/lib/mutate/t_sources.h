/*
 * Two saves in every form that zckpt reads: with the same names, shapes and sizes, and another
 * value at every place.
 */
#ifndef T_SOURCES_H
#define T_SOURCES_H

#include <stdbool.h>

#include "tests/lib/fs/t_tree.h"

enum t_form {
	T_FORM_ST,		/* safetensors without sums */
	T_FORM_ST_SUMS,
	T_FORM_HF,		/* shards and their index, without sums */
	T_FORM_PT,
	T_FORM_PT_BARE,		/* a .pt without CRCs */
	T_FORM_PT_LEGACY,	/* from before torch wrote archives */
	T_FORM_DEEPSPEED,
	T_FORM_UNIVERSAL,
	T_FORM_NATIVE,
	T_FORM_PACK,		/* nothing where ckpt_has_packs() is false */
	T_NFORMS,
};

struct t_source {
	const char *form;	/* "DeepSpeed" */
	const char *name;	/* what is opened, below the folder of the trees */
	bool is_step;		/* can be resharded */
	struct t_tree was, is;	/* the two saves */
};

/* 'dir' is an empty folder to work in. Ends the program where a form cannot be made. */
void t_sources_make(const char *dir, struct t_source out[T_NFORMS]);
void t_sources_free(struct t_source s[T_NFORMS]);

#endif
