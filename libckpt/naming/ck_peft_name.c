/* ck_peft_name.c -- see ck_peft_name.h. */
#include "libckpt/naming/ck_peft_name.h"

#include <string.h>

/* What a part is called, between dots. */
static const struct word {
	const char *text;
	enum ck_peft_part part;
	const char *method;
} words[] = {
	{ ".lora_A", CK_PEFT_A, NULL },
	{ ".lora_B", CK_PEFT_B, NULL },
	{ ".lora_embedding_A", CK_PEFT_EMBED_A, NULL },
	{ ".lora_embedding_B", CK_PEFT_EMBED_B, NULL },
	{ ".lora_magnitude_vector", CK_PEFT_MAGNITUDE, NULL },
	{ ".modules_to_save", CK_PEFT_SAVED, NULL },
	{ ".original_module", CK_PEFT_ORIGINAL, NULL },
	{ ".lora_E", CK_PEFT_OTHER, "AdaLoRA" },
	{ ".ranknum", CK_PEFT_OTHER, "AdaLoRA" },
	{ ".hada_w1_a", CK_PEFT_OTHER, "LoHa" }, { ".hada_w1_b", CK_PEFT_OTHER, "LoHa" },
	{ ".hada_w2_a", CK_PEFT_OTHER, "LoHa" }, { ".hada_w2_b", CK_PEFT_OTHER, "LoHa" },
	{ ".hada_t1", CK_PEFT_OTHER, "LoHa" }, { ".hada_t2", CK_PEFT_OTHER, "LoHa" },
	{ ".lokr_w1", CK_PEFT_OTHER, "LoKr" }, { ".lokr_w2", CK_PEFT_OTHER, "LoKr" },
	{ ".lokr_w1_a", CK_PEFT_OTHER, "LoKr" }, { ".lokr_w1_b", CK_PEFT_OTHER, "LoKr" },
	{ ".lokr_w2_a", CK_PEFT_OTHER, "LoKr" }, { ".lokr_w2_b", CK_PEFT_OTHER, "LoKr" },
	{ ".lokr_t2", CK_PEFT_OTHER, "LoKr" },
	{ ".ia3_l", CK_PEFT_OTHER, "IA3" },
	{ ".vera_lambda_b", CK_PEFT_OTHER, "VeRA" },
	{ ".vera_lambda_d", CK_PEFT_OTHER, "VeRA" },
	{ ".vera_A", CK_PEFT_OTHER, "VeRA" }, { ".vera_B", CK_PEFT_OTHER, "VeRA" },
	{ ".oft_R", CK_PEFT_OTHER, "OFT" }, { ".oft_r", CK_PEFT_OTHER, "OFT" },
	{ ".boft_R", CK_PEFT_OTHER, "BOFT" }, { ".boft_s", CK_PEFT_OTHER, "BOFT" },
	{ ".hra_u", CK_PEFT_OTHER, "HRA" },
	{ ".fourierft_spectrum", CK_PEFT_OTHER, "FourierFT" },
	{ ".vblora_logits_A", CK_PEFT_OTHER, "VB-LoRA" },
	{ ".vblora_logits_B", CK_PEFT_OTHER, "VB-LoRA" },
	{ ".trainable_tokens_delta", CK_PEFT_OTHER, "trainable tokens" },
	{ ".trainable_tokens_original", CK_PEFT_OTHER, "trainable tokens" },
	{ ".prompt_encoder", CK_PEFT_OTHER, "a prompt encoder" },
};

/* Where a wrapper's word is in a name; what is between two dots is one word. */
static const char *find_word(const char *name, const char *text)
{
	const size_t n = strlen(text);

	for (const char *p = strstr(name, text); p; p = strstr(p + 1, text))
		if (!p[n] || p[n] == '.')
			return p;
	return NULL;
}

static void take_rest(struct ck_peft_name *out, const char *after)
{
	const char *dot;
	size_t n;

	out->adapter = out->rest = after;
	if (!*after)
		return;
	out->rest = ++after;
	dot = strchr(after, '.');
	n = dot ? (size_t)(dot - after) : strlen(after);
	/* "lora_A.weight" has none, "lora_embedding_A.default" has */
	if (!dot && (!strcmp(after, "weight") || !strcmp(after, "bias")))
		return;
	out->adapter = after;
	out->adapter_len = n;
	out->rest = dot ? dot + 1 : after + n;
}

void ck_peft_name_parse(const char *name, struct ck_peft_name *out)
{
	const struct word *w = NULL;
	const char *at = NULL;

	*out = (struct ck_peft_name){ .module = name, .module_len = strlen(name), .adapter = "",
				      .rest = "" };
	if (!strncmp(name, "prompt_encoder.", 15)) {
		out->part = CK_PEFT_OTHER;
		out->method = "a prompt encoder";
		return;
	}
	for (size_t i = 0; !at && i < CK_ARRAY_LEN(words); i++) {
		w = &words[i];
		at = find_word(name, w->text);
	}
	if (!at)
		return;
	out->part = w->part;
	out->method = w->method;
	out->module_len = (size_t)(at - name);
	take_rest(out, at + strlen(w->text));
	if (w->part == CK_PEFT_B && !strcmp(out->rest, "bias"))
		out->part = CK_PEFT_B_BIAS;
	/* AdaLoRA's matrices are parameters themselves, without a ".weight" */
	if ((out->part == CK_PEFT_A || out->part == CK_PEFT_B) && strcmp(out->rest, "weight")) {
		out->part = CK_PEFT_OTHER;
		out->method = *out->adapter ? "AdaLoRA" : "AdaLoRA or a LoRA that is not PEFT's";
	}
}

bool ck_peft_is_lora(enum ck_peft_part part)
{
	return part >= CK_PEFT_A && part <= CK_PEFT_B_BIAS;
}

bool ck_peft_is_wrapped(const char *name)
{
	return strstr(name, "base_model.model.") || find_word(name, ".base_layer");
}

/* Past what wrappers put in front of names. */
static const char *skip_front(const char *name)
{
	static const char *const front[] = { "module.", "_orig_mod.", "base_model.model." };

	for (size_t i = 0; i < CK_ARRAY_LEN(front);) {
		const size_t n = strlen(front[i]);

		if (!strncmp(name, front[i], n)) {
			name += n;
			i = 0;
		} else {
			i++;
		}
	}
	return name;
}

const char *ck_peft_plain(struct ck_arena *arena, const char *name, size_t len)
{
	static const char *const within[] = {
		".base_layer", ".original_module", "._orig_mod", "._fsdp_wrapped_module",
		"._checkpoint_wrapped_module",
	};
	const char *from = skip_front(name);
	char *copy, *p;

	if (from > name + len)
		from = name + len;
	copy = ck_arena_strndup(arena, from, len - (size_t)(from - name));
	for (size_t i = 0; copy && i < CK_ARRAY_LEN(within); i++)
		while ((p = (char *)(uintptr_t)find_word(copy, within[i])))
			memmove(p, p + strlen(within[i]), strlen(p + strlen(within[i])) + 1);
	return copy;
}

const char *ck_peft_file_name(struct ck_arena *arena, const char *name)
{
	static const char *const tail[] = {
		[CK_PEFT_A] = ".lora_A.weight", [CK_PEFT_B] = ".lora_B.weight",
		[CK_PEFT_EMBED_A] = ".lora_embedding_A", [CK_PEFT_EMBED_B] = ".lora_embedding_B",
		[CK_PEFT_MAGNITUDE] = ".lora_magnitude_vector",
		[CK_PEFT_B_BIAS] = ".lora_B.bias",
	};
	struct ck_peft_name part;
	const char *plain;

	ck_peft_name_parse(name, &part);
	if (part.part == CK_PEFT_NONE)	/* a bias of a base_layer keeps that in its name */
		return ck_arena_printf(arena, "base_model.model.%s", skip_front(name));
	plain = ck_peft_plain(arena, name, part.module_len);
	if (!plain)
		return NULL;
	if (ck_peft_is_lora(part.part))
		return ck_arena_printf(arena, "base_model.model.%s%s", plain, tail[part.part]);
	return ck_arena_printf(arena, "base_model.model.%s.%s", plain, part.rest);
}

const char *ck_peft_live_name(struct ck_arena *arena, const char *name)
{
	static const char *const tail[] = {
		[CK_PEFT_A] = ".lora_A.default.weight", [CK_PEFT_B] = ".lora_B.default.weight",
		[CK_PEFT_EMBED_A] = ".lora_embedding_A.default",
		[CK_PEFT_EMBED_B] = ".lora_embedding_B.default",
		[CK_PEFT_MAGNITUDE] = ".lora_magnitude_vector.default.weight",
		[CK_PEFT_B_BIAS] = ".lora_B.default.bias",
	};
	struct ck_peft_name p;

	ck_peft_name_parse(name, &p);
	if (!ck_peft_is_lora(p.part) || p.adapter_len)
		return ck_arena_strdup(arena, name);
	return ck_arena_printf(arena, "%.*s%s", (int)p.module_len, name, tail[p.part]);
}

/* Characters that a regular expression takes as they are; '.' is any one. */
static bool is_simple(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '_' || c == '-' || c == '.';
}

bool ck_peft_pattern_fits(const char *key, const char *module, bool *known_out)
{
	const bool begins = key[0] == '^';
	size_t n = 0, m;
	char text[512];

	*known_out = true;
	for (const char *p = key + begins; *p && n < sizeof(text) - 1; p++) {
		if (*p == '\\' && p[1] == '.')
			p++;
		if (*p == '$' && !p[1])
			break;
		*known_out &= is_simple(*p);
		text[n++] = *p;
	}
	text[n] = 0;
	*known_out &= n < sizeof(text) - 1;
	m = strlen(module);
	if (!*known_out || m < n || (begins && m != n) ||
	    (m > n && module[m - n - 1] != '.'))
		return false;
	for (size_t i = 0; i < n; i++)
		if (text[i] != '.' && text[i] != module[m - n + i])
			return false;
	return true;
}
