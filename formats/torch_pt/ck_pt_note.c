/* ck_pt_note.c -- findings about what is unusual in a file, and no error. */
#include "formats/torch_pt/ck_pt_priv.h"

void ck_pt_note(const struct ck_pt *pt, struct ck_findings *findings, const char *text)
{
	if (findings)
		ck_findings_add(findings, CK_FINDING_FORMAT_NOTE, ck_src_name(pt->src), "%s", text);
}

void ck_pt_notes_pickle(const struct ck_pt *pt, struct ck_findings *findings, unsigned notes)
{
	static const struct {
		unsigned bit;
		const char *text;
	} texts[] = {
		{CK_PKL_NOTE_PROTO, "the pickle states its protocol twice or late: it was edited"},
		{CK_PKL_NOTE_LEFT, "the pickle leaves more than one value: it was edited"},
		{CK_PKL_NOTE_POP, "the pickle makes a value and drops it: it was edited"},
		{CK_PKL_NOTE_INST, "the pickle uses INST or OBJ, which Python 2 wrote"},
		{CK_PKL_NOTE_LATIN1, "Python 2 strings that are not UTF-8 were read as Latin-1"},
		{CK_PKL_NOTE_SPLIT, "a known name is cut into module and name in an unusual place"},
		{CK_PKL_NOTE_MENTION, "the pickle mentions a refused name without calling it"},
	};

	for (size_t i = 0; i < CK_ARRAY_LEN(texts); i++)
		if (notes & texts[i].bit)
			ck_pt_note(pt, findings, texts[i].text);
}
