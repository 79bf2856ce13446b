/* Small torch files made from a line of text, for steps that no real run has left behind. */
#ifndef T_PKL_H
#define T_PKL_H

/*
 * Writes PATH, an archive as torch.save makes it, of the value that TEXT describes:
 *
 *	{ 'key' value ... }    a dict             [ value ... ]    a list
 *	( value ... )          a tuple            'text'           a string
 *	12  -3  0.5            numbers            None
 *	<f32 2 3 @10>          a tensor with a storage of its own; its elements are 10, 11, ...
 *	                       Types: f32, bf16, i64, i8.
 *
 * The archive's prefix is PATH's last part without ".pt", as DeepSpeed writes it.
 */
void t_pkl_save(const char *path, const char *text);

/* The archive at PATH again, with every member deflated. */
void t_pkl_deflate(const char *path);

#endif
