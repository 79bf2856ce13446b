/*
 * For the library of `make bundle` (mk/portable.mk): libarchive's reader of zips
 * can use bzip2, and a distribution's libbz2.a is often not compiled for a shared
 * library.  With these, it reports an entry that bzip2 compressed as one that
 * it cannot initialize.
 */
#define CONFIG_ERROR	(-9)	/* BZ_CONFIG_ERROR of <bzlib.h> */

int BZ2_bzDecompressInit(void *stream, int verbosity, int small);
int BZ2_bzDecompress(void *stream);
int BZ2_bzDecompressEnd(void *stream);

int BZ2_bzDecompressInit(void *stream, int verbosity, int small)
{
	(void)stream;
	(void)verbosity;
	(void)small;
	return CONFIG_ERROR;
}

int BZ2_bzDecompress(void *stream)
{
	(void)stream;
	return CONFIG_ERROR;
}

int BZ2_bzDecompressEnd(void *stream)
{
	(void)stream;
	return CONFIG_ERROR;
}
