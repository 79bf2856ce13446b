/* cli_map.h -- what the files of `zckpt map` share. */
#ifndef CLI_MAP_H
#define CLI_MAP_H

#include "cli.h"

struct map {
	const struct args *args;
	struct ckpt *ck;
	struct ckpt_info info;
	const char *source;		/* the first one, as it was given */
	size_t nsources;
	unsigned only;
	const struct words *state;	/* those that were chosen; none: all */
	struct words names;		/* tensors that were named */
	char *why;			/* what is missing or damaged, or NULL */
	int64_t rank;			/* -1 = all */
	struct json json;
};

/* Whether the choice of tensors covers this one. */
int map_is_selected(const struct map *map, const char *name, enum ckpt_role role);
/* Whether an extent or a file of this rank (-1: of none) is asked for. */
int map_is_of_rank(const struct map *map, int32_t rank);
/* The path without the folder that was opened; of the file that was opened its name. */
const char *map_path(const struct map *map, const char *path);

/* Bytes of each rank and state, or of each file where there are no ranks. */
void map_summary(const struct map *map);
/* Files and ranges of the rank. */
void map_rank(const struct map *map);
/* Names of files, one a line, relative to the source. */
void map_files(const struct map *map);
/* "by_rank" or "by_file", and with a rank also the next one. */
void map_summary_json(const struct map *map, struct json *json);
/* "rank" and "needs". */
void map_rank_json(const struct map *map, struct json *json);

#endif
