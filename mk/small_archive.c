/*
 * For programs that take libarchive from its archive (mk/portable.mk).  Three
 * symbols of our formats lead to most of libarchive.a, and from there to libxml2,
 * ICU and nettle.  They are defined here, so the linker does not open the
 * members that have them:
 *
 *   - the message of a file type that a format cannot write: it is in the member
 *     that names every writer.  A pack has regular files and folders alone;
 *   - AES and HMAC of encrypted zips, which unpack refuses before it reads a byte.
 *
 * The names are libarchive's own, and reserved; their types are private to it, so
 * the two tables have the shape alone: pointers to functions that fail.
 */
#include <archive.h>
#include <archive_entry.h>

#define ERRNO_MISC	(-1)	/* ARCHIVE_ERRNO_MISC, which <archive.h> does not have */
#define TABLE_MOST	16	/* the longer table has 8 functions */
#define UNSUPPORTED	(-2)	/* what libarchive's own functions answer without a crypto library */

void __archive_write_entry_filetype_unsupported(struct archive *, struct archive_entry *, const char *);

void __archive_write_entry_filetype_unsupported(struct archive *a, struct archive_entry *e,
						const char *format)
{
	archive_set_error(a, ERRNO_MISC, "%s: %s archives cannot hold this type of file",
			  archive_entry_pathname(e), format);
}

static int refuse(void)
{
	return UNSUPPORTED;
}

#define FOUR		refuse, refuse, refuse, refuse
int (*const __archive_cryptor[TABLE_MOST])(void) = { FOUR, FOUR, FOUR, FOUR };
int (*const __archive_hmac[TABLE_MOST])(void) = { FOUR, FOUR, FOUR, FOUR };
