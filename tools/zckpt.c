/* zckpt.c -- the program: its commands, --version, and the way out. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli_complete.h"
#include "cli_explain.h"
#include "cli_form.h"
#include "cli_meant.h"
#include "cli_team.h"

static const struct command *const commands[] = {
	&cmd_audit, &cmd_cat, &cmd_commit, &cmd_convert, &cmd_diff, &cmd_digest,
	&cmd_doctor, &cmd_explain, &cmd_inspect, &cmd_latest, &cmd_ls, &cmd_map,
	&cmd_mount, &cmd_pack, &cmd_plan, &cmd_prune, &cmd_report, &cmd_reshard, &cmd_serve,
	&cmd_set_latest,
	&cmd_shard, &cmd_slim, &cmd_unpack, &cmd_verify,
};
#define NCOMMANDS (sizeof(commands) / sizeof(commands[0]))

static const struct command *command_find(const char *name)
{
	for (size_t i = 0; i < NCOMMANDS; i++)
		if (!strcmp(commands[i]->name, name))
			return commands[i];
	return NULL;
}

static int unknown_command(const char *word)
{
	const int is_call = cli_args.argc > 1 && !strcmp(cli_args.argv[1], word);
	const char *names[NCOMMANDS + 2] = { 0 }, *near;

	if (explain_find(word))
		return cli_wrong(NULL, "%s is a finding: zckpt explain %s",
				 explain_find(word)->id, explain_find(word)->id);
	for (size_t i = 0; i < NCOMMANDS; i++)
		names[i] = commands[i]->name;
	names[NCOMMANDS] = "help";
	if (is_call && !access(word, F_OK))
		return cli_try(NULL, meant_of_path(&cli_args), "%s is a path; a command comes "
			       "first", out_name(word));
	if (is_call && opt_is_name(word, "merge") && meant_merge(&cli_args))
		return EXIT_CALL;
	near = meant_verb(&cli_args, word);
	if (!near)
		near = opt_nearest(word, names);
	if (opt_is_name(word, "gguf"))
		return cli_try(NULL, "zckpt convert RUN my-model && "
			       "python convert_hf_to_gguf.py my-model",
			       "zckpt writes no GGUF; llama.cpp makes it from a folder of convert");
	if (near)
		return cli_try(NULL, is_call ? meant_call(&cli_args, near) : NULL,
			       "there is no command %s; did you mean %s?", out_name(word), near);
	return cli_wrong(NULL, "there is no command %s", out_name(word));
}

/* The command of this call, "call" where none is known. */
static const char *verb_of_call(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (argv[i][0] != '-' && strcmp(argv[i], "help"))
			return command_find(argv[i]) ? argv[i] : "call";
	return "call";
}

static int has_word(int argc, char **argv, const char *word)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--"); i++)
		if (!strcmp(argv[i], word))
			return 1;
	return 0;
}

static int wants_json(int argc, char **argv)
{
	return has_word(argc, argv, "--json");
}

/* Text for people as the one value of an object. */
static int print_text(const char *key, const char *text)
{
	struct json json;

	if (wants_json(cli_args.argc, cli_args.argv)) {
		json_begin(&json, stdout, verb_of_call(cli_args.argc, cli_args.argv));
		json_text(&json, key, text);
		json_close(&json, '}');
	} else {
		fputs(text, stdout);
	}
	return EXIT_DONE;
}

static void print_help(FILE *out)
{
	fprintf(out, "usage: zckpt COMMAND [OPTION...] ...\n\n"
	       "Reads checkpoints that DeepSpeed saved with ZeRO, without Python.\n\n"
	       "commands:\n");
	for (size_t i = 0; i < NCOMMANDS; i++)
		fprintf(out, "  %-10s %s\n", commands[i]->name, commands[i]->gist);
	fprintf(out, "\n"
	       "'zckpt COMMAND -h' lists the options of a command.\n"
	       "Exit: 0 done, 1 the answer is no, 2 usage error or destination exists,\n"
	       "3 I/O, damage or unsupported, 4 a pickle asks for a refused call,\n"
	       "or an archive holds a link or a path out of its folder.\n");
}

/* The list of commands, or with 'cmd' its help. */
static int help_with(const struct command *cmd, int all)
{
	char *text = NULL;
	size_t size;
	FILE *out;

	if (cmd && !wants_json(cli_args.argc, cli_args.argv)) {	/* in colour */
		cli_help(cmd, all, stdout);
		return EXIT_DONE;
	}
	out = open_memstream(&text, &size);
	if (!out)
		return EXIT_TROUBLE;
	if (cmd)
		cli_help(cmd, all, out);
	else
		print_help(out);
	if (!fclose(out))
		print_text("help", text);
	free(text);
	return EXIT_DONE;
}

static int help(int argc, char **argv)
{
	const struct command *cmd;
	const int all = opt_help_all(argc, argv);

	while (argc > 1 && argv[1][0] == '-') {		/* --json, --all */
		argc--;
		argv++;
	}
	if (argc < 2)
		return help_with(NULL, 0);
	cmd = command_find(argv[1]);
	if (!cmd && explain_find(argv[1])) {
		explain_print(explain_find(argv[1]));
		return EXIT_DONE;
	}
	if (!cmd)
		return unknown_command(argv[1]);
	return help_with(cmd, all);
}

static int print_version(void)
{
	return print_text("version", cli_format("zckpt %s (libckpt %s)\n", CKPT_VERSION_STRING,
						ckpt_version()));
}

static int early_option(int argc, char **argv)
{
	int at = 1;

	while (at < argc && !command_find(argv[at]))
		at++;
	return cli_try(NULL, at < argc ? meant_order(&cli_args, at) : NULL,
		       "%s is before the command; options follow it", out_name(argv[1]));
}

static int run(int argc, char **argv)
{
	struct args *args = &cli_args;
	const struct command *cmd;
	int status;

	args->argc = argc;
	args->argv = argv;
	term_read(argc, argv);
	if (wants_json(argc, argv) && strcmp(argv[1], "__complete"))
		cli_promise_json(verb_of_call(argc, argv));
	if (argc < 2)
		return cli_wrong(NULL, "no command is given");
	if (!strcmp(argv[1], "help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "--help"))
		return help(argc - 1, argv + 1);
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V"))
		return print_version();
	if (!strcmp(argv[1], "__complete"))
		return cli_complete(commands, NCOMMANDS, argc - 2, argv + 2);
	if (argv[1][0] == '-')
		return early_option(argc, argv);
	cmd = command_find(argv[1]);
	if (!cmd)
		return unknown_command(argv[1]);
	if (cli_form_is_reshards(cmd->name, argc, argv))
		cmd = command_find("reshard");
	if (argc == 3 && !strcmp(argv[2], "help") && access(argv[2], F_OK))
		return help(argc - 1, argv);
	status = team_join(cmd, argc, argv);
	if (!status && (has_word(argc, argv, "-h") || has_word(argc, argv, "--help")))
		return help_with(cmd, has_word(argc, argv, "--all"));
	if (!status)
		status = cli_parse(cmd, argc - 2, argv + 2);
	if (status)
		return status;
	if (args->help)
		return help_with(cmd, opt_help_all(argc, argv));
	status = cli_no_address(cmd, args);
	if (status)
		return status;
	if (!args->threads)
		args->threads = team_threads();
	if (cmd->ranks == RANKS_SHARE || team_size() == 1)
		return cmd->run(args);
	return team_first(team_rank() ? 0 : cmd->run(args));
}

/*
 * A descriptor 0 to 2 that the caller closed would be given to the next file that is
 * opened, and a message would go into the result.  What stands there instead cannot
 * be written, so output that is lost is still noticed.
 */
static void occupy_standard_descriptors(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDONLY);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

int main(int argc, char **argv)
{
	int status;

	occupy_standard_descriptors();
	status = cli_close_stdout(run(argc, argv));
	team_leave(status);
	/* a signal that came when all was done changes nothing */
	if (status)
		signals_die();
	return status;
}
