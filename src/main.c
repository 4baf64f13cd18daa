/* The program: a table of verbs. The environment is read here and nowhere else, and the process ends here. */
#include "base/json.h"
#include "cli/verbs.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct verb {
    const char *name;
    int (*run)(const lw_term *term, int argc, char **argv);
    const char *text;
} verb;

static const verb verbs[] = {
    { "run", lw_verb_run, "answer a prompt, or chat" },
    { "serve", lw_verb_serve, "answer over HTTP, as the OpenAI API does" },
    { "info", lw_verb_info, "say what a model folder holds and whether it is served" },
    { "tokenize", lw_verb_tokenize, "show the token ids of a text" },
    { "devices", lw_verb_devices, "list what can compute here" },
    { "check", lw_verb_check, "compare the forward with stored double-precision references" },
    { "receipts", lw_verb_receipts, "show that replies are the same however they were made" },
    { "bench", lw_verb_bench, "measure speed and memory" },
};
enum { VERB_COUNT = sizeof verbs / sizeof verbs[0] };

static int print_help(void)
{
    fputs("usage: lanewise VERB [options] ...\n\n"
          "Runs language models; every reply is the same bits, however it was made.\n\nverbs:\n",
          stdout);
    for (size_t i = 0; i < VERB_COUNT; i++) printf("  %-10s %s\n", verbs[i].name, verbs[i].text);
    fputs(
        "\n`lanewise VERB --help` lists the options of a verb, with examples.\n"
        "--version prints the version and the commit. NO_COLOR in the environment switches colours off;\n"
        "LANEWISE_API_KEY holds keys for `serve`, separated by commas. LANEWISE_ZE_LOADER is the library of\n"
        "Level Zero's loader (libze_loader.so.1), LANEWISE_XPU_KERNELS a module of kernels for the xpu\n"
        "device, and LANEWISE_XPU_WITHOUT names what that device does without (docs/xpu.md).\n"
        "Exit codes: 0 done, 1 failed, 2 wrong usage, 130 ended by Ctrl-C.\n",
        stdout);
    return LW_EXIT_OK;
}

static int print_version(void)
{
    printf("lanewise %s (%s)\n", LW_VERSION, lw_commit());
    return LW_EXIT_OK;
}

static int dispatch(const lw_term *term, int argc, char **argv)
{
    if (argc < 2) {
        fputs("lanewise: no verb given; `lanewise --help` lists them\n", stderr);
        return LW_EXIT_USAGE;
    }
    const char *word = argv[1];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0)
        return print_help();
    if (strcmp(word, "--version") == 0) return print_version();
    for (size_t i = 0; i < VERB_COUNT; i++) {
        if (strcmp(word, verbs[i].name) != 0) continue;
        if (argc == 3 && strcmp(argv[2], "--version") == 0) return print_version();
        return verbs[i].run(term, argc - 2, argv + 2);
    }
    return lw_usage_error("", "there is no verb \"%s\"", word);
}

int main(int argc, char **argv)
{
    lw_streams_guard();
    lw_json_install();
    /* A reader that went away is seen as a failed write, so that replies end between two tokens. */
    signal(SIGPIPE, SIG_IGN);
    lw_term term = lw_term_make(getenv("NO_COLOR"));
    term.api_keys = getenv("LANEWISE_API_KEY");
    term.ze_loader = getenv("LANEWISE_ZE_LOADER");
    term.xpu_kernels = getenv("LANEWISE_XPU_KERNELS");
    term.without = getenv("LANEWISE_XPU_WITHOUT");
    term.cache_home = getenv("XDG_CACHE_HOME");
    term.home = getenv("HOME");
    if (!lw_kept_dir(term.cache_home, term.home, "xpu-images", term.xpu_images)) term.xpu_images[0] = '\0';
    exit(lw_out_finish(dispatch(&term, argc, argv)));
}
