/* en_verdict.h -- what was read of a configuration, and the verdicts on its keys. */
#ifndef EN_VERDICT_H
#define EN_VERDICT_H

#include "engine/config/keys/en_settings.h"
#include "engine/config/tree/en_node.h"

enum en_ruling {
	EN_USED = 1,
	EN_NO_EFFECT,	/* known, and nothing here depends on it: 'why' */
	EN_IGNORED,	/* unknown to them too, and silently ignored by them */
	EN_REFUSED,	/* the run does not begin: 'why' */
};

struct en_verdict {
	enum en_ruling ruling;
	/* DeepSpeed or accelerate does the same: refuses it, or ignores it. */
	bool theirs;
	bool trainers;			/* 'theirs' is the Trainer of transformers */
	bool later;			/* 'theirs' fails later, which 'why' says */
	bool deprecated;		/* an old name; 'why' has the new one */
	enum ckpt_code code;		/* of EN_REFUSED */
	const char *path;		/* "zero_optimization.stage", as the file spells it */
	const char *value;		/* text, see en_node_text(); "" where there is none */
	struct en_place at;
	const char *why;		/* a clause, or "" */
};

/* Where a setting comes from. */
struct en_origin {
	const char *path;	/* as DeepSpeed documents it */
	struct en_place at;
	const char *value;
	bool matters;		/* under the other settings it has an effect */
};

/* What accelerate's file says of the launch. */
struct en_launch {
	bool from_accelerate;
	uint32_t num_processes;	/* over all machines; 0 = not said */
	uint32_t num_machines, machine_rank;
	const char *main_process_ip;	/* NULL = not said */
	uint32_t main_process_port;	/* 0 = not said */
	const char *mixed_precision;	/* "no", "fp16", "bf16" */
	const char *launcher;		/* deepspeed_multinode_launcher, NULL = not said */
};

struct en_config {
	struct en_settings set;		/* after en_config_resolve() */
	struct en_launch launch;
	enum en_ds_version version;
	const char *file;		/* the one the caller named */
	const char *json_file;		/* the DeepSpeed configuration, NULL = made of a YAML */
	struct en_verdict *verdict;	/* in the order of the files */
	uint64_t n_verdicts, verdict_cap;
	struct en_origin *origin; /* of every setting, in the order of docs/ztrain/config.md */
	uint64_t n_origins;
	struct ck_arena arena;		/* everything above that is a pointer, but verdict */
	struct en_node *tree;		/* what DeepSpeed would be given */
	bool strict;			/* plain JSON */
};

/* Where the setting of a documented path comes from; NULL if there is no such. */
const struct en_origin *en_config_origin(const struct en_config *cfg, const char *path);
/* The first verdict of that ruling on that path (as the file spells it), or NULL. */
const struct en_verdict *en_config_verdict(const struct en_config *cfg, const char *path);

#endif
