/*
 * dcp_layout.c -- what the boxes and folders of a result are called: as its source has them, or as
 * the program that is to load it asks for them.
 */
#include <string.h>

#include "formats/dcp/dcp_out.h"
#include "libckpt/base/ck_err.h"

/* "a.b" as what names begin with, "a.b."; "" stays; NULL: not usable, or no memory. */
static const char *box_of(struct dcp_out *o, const char *name, size_t n)
{
	bool after_dot = true;

	for (size_t i = 0; i < n; i++) {
		if ((unsigned char)name[i] < ' ' || (name[i] == '.' && after_dot))
			return NULL;
		after_dot = name[i] == '.';
	}
	return n && after_dot ? NULL :
	       ck_arena_printf(o->arena, "%.*s%s", (int)n, name, n ? "." : "");
}

/* Two names with a comma between. */
static int choose_pair(struct dcp_out *o, const char *layout, struct ckpt_err *err)
{
	const char *comma = strchr(layout, ',');

	if (comma && strlen(layout) < 200) {
		o->model = box_of(o, layout, (size_t)(comma - layout));
		o->optim = box_of(o, comma + 1, strlen(comma + 1));
	}
	if (!comma || strlen(layout) >= 200 || strchr(comma + 1, ',') || !o->model || !o->optim ||
	    !strcmp(o->model, o->optim) || !strcmp(o->model, "deepspeed.") ||
	    !strcmp(o->optim, "deepspeed."))
		return ck_fail(err, CKPT_E_USAGE, layout, CKPT_NO_OFFSET,
			       "not a layout of DCP; expected titan, accelerate, or two names for "
			       "the model and the optimizer: model,optimizer");
	return 0;
}

int ck_dcp_layout_choose(struct dcp_out *o, struct ckpt_err *err)
{
	const char *layout = o->want->layout;
	const struct dcp *from = o->source;

	o->model = "model.";
	o->optim = "optimizer.";
	if (!layout && from) {
		o->model = !*from->box ? "" : ck_arena_printf(o->arena, "%s.", from->box);
		o->optim = from->optim;
		o->flat = from->by_parameter;
		o->is_split = from->fs.nparts > 1;
	} else if (layout && !strcmp(layout, "titan")) {
		o->model = "";
		o->flat = true;
	} else if (layout && !strcmp(layout, "accelerate")) {
		o->is_split = true;
	} else if (layout) {
		return choose_pair(o, layout, err);
	}
	return o->model ? 0 : ck_fail_nomem(err, "a name", 0);
}

const char *ck_dcp_layout_folder(const struct dcp_out *o, uint8_t part)
{
	return !o->is_split ? "" : part ? "optimizer_0/" : "pytorch_model_fsdp_0/";
}
