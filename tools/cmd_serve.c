/* cmd_serve.c -- `zckpt serve`: a checkpoint by HTTP, as the files that convert would write. */
#include <string.h>

#ifdef ZCKPT_HTTP
#include "http/srv.h"
#endif
#include "cli.h"

static struct {
	const char *bind;
	uint64_t port;
} want = { .bind = "127.0.0.1", .port = 8000 };

static const struct opt own[] = {
	{ "port", 'p', OPT_COUNT, &want.port, "N", "port (default 8000); 0: any free one", 0 },
	{ "bind", 0, OPT_TEXT, &want.bind, "ADDRESS",
	  "address to listen at (default 127.0.0.1: this machine only)", 0 },
	{ "host", 0, OPT_TEXT, &want.bind, "ADDRESS", "", OPT_HIDDEN },
	{ 0 },
};

#ifdef ZCKPT_HTTP
static int serve(const struct args *args)
{
	struct shelf shelf = { .aux = cli_aux };
	struct srv srv = { .shelf = &shelf, .bind = want.bind, .port = (uint16_t)want.port };
	int status = cli_select(&cmd_serve, args, &shelf.select);

	if (!status)
		status = shelf_open(&shelf, args, args->rest.list[0]);
	if (!status)
		status = srv_run(&srv);
	shelf_close(&shelf);
	return status;
}
#else
static int serve(const struct args *args)
{
	(void)args;
	cli_say_error("this zckpt was built without libmicrohttpd, so it cannot serve; install "
		      "libmicrohttpd-dev and build again: make HTTP=1");
	return EXIT_TROUBLE;
}
#endif

static int run(struct args *args)
{
	if (args->rest.n != 1)
		return cli_wrong(&cmd_serve, "serve needs one checkpoint, or the folder of a run: "
				 "zckpt serve RUN");
	if (want.port > 65535)
		return cli_wrong(&cmd_serve, "--port: %llu is no port; ports are 0 to 65535",
				 (unsigned long long)want.port);
	return serve(args);
}

const struct command cmd_serve = {
	.name = "serve",
	.run = run,
	.gist = "serve a checkpoint by HTTP as model.safetensors",
	.synopsis = "PATH",
	.about = "Serves the files that convert would write, made from the checkpoint when they "
		 "are read: model.safetensors as saved, the same below fp32/, bf16/ and fp16/, "
		 "the optimizer's states below state/, config.json and the tokenizer. Of a run, "
		 "each complete step is a folder. Ranges work. Bytes are compared with their "
		 "sums before they are sent; damage is status 500 or a cut connection, and a "
		 "line in /findings. Ctrl-C ends it.",
	.examples = "zckpt serve run\n"
		    "zckpt serve --port 8080 run/global_step100\n"
		    "zckpt serve --aux my-model --include 'model.norm*' run\n",
	.notes = "Only this machine can connect, unless --bind says otherwise; then there is no "
		 "password and no encryption. The page / lists the files, index.json does so for "
		 "programs.",
	.tables = { own, opts_shown, opts_select, opts_shown_talk, NULL },
};
