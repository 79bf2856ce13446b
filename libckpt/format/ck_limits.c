/* ck_limits.c -- see ck_limits.h. */
#include "libckpt/format/ck_limits.h"

#include <string.h>

#define DEFAULT(field, value)                 \
	do {                                  \
		if (!out->field)              \
			out->field = (value); \
	} while (0)

void ck_limits_fill(const struct ckpt_limits *in, struct ckpt_limits *out)
{
	memset(out, 0, sizeof(*out));
	if (in)
		memcpy(out, in, in->size < sizeof(*out) ? in->size : sizeof(*out));
	out->size = sizeof(*out);
	DEFAULT(zip_entries, 4000000);
	DEFAULT(zip_dir_bytes, (uint64_t)1 << 30);
	DEFAULT(pickle_bytes, (uint64_t)1 << 30);
	DEFAULT(pickle_nodes, 50000000);
	DEFAULT(pickle_depth, 1000);
	DEFAULT(header_bytes, 100000000);
	DEFAULT(json_depth, 64);
	DEFAULT(json_nodes, 40000000);
	DEFAULT(tensor_dims, 64);
	DEFAULT(inflate_bytes, (uint64_t)1 << 30);
	DEFAULT(inflate_ratio, 1032);
	DEFAULT(gather_bytes, (uint64_t)1 << 30);
	DEFAULT(files, 100000);
	DEFAULT(memory_bytes, (uint64_t)4 << 30);
}
