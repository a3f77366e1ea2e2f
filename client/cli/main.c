/* main.c - symplex-client: finds the command, parses its options, prints its error. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/cli.h"

#define O(name) ((sxc_option_set)1 << SXC_##name)
#define O_COMMON (O(HELP) | O(JSON))
/* One operation instead of a file (program.h). */
#define O_PROGRAM                                                                      \
    (O(GEMM) | O(ATTENTION) | O(SOFTMAX) | O(NORM) | O(DTYPE) | O(BATCH) | O(LAYOUT) | \
     O(EPILOGUE) | O(PRINT_PROGRAM))
_Static_assert(SXC_OPTION_COUNT <= 128, "the options of a command are bits of 128");

const sxc_option_row sxc_options[SXC_OPTION_COUNT] = {
#define SXC_OPTION(enumerator, name_, letter_, argument_, repeated_, help_) \
    [SXC_##enumerator] = {.name = name_,                                    \
                          .argument = argument_,                            \
                          .help = help_,                                    \
                          .letter = letter_,                                \
                          .repeated = repeated_},
#include "client/cli/options.def"
#undef SXC_OPTION
};
const sxc_command sxc_commands[] = {
#define SXC_COMMAND(name_, function, arguments_, fewest_, most_, options_, help_) \
    {.name = name_,                                                               \
     .arguments = arguments_,                                                     \
     .help = help_,                                                               \
     .run = function,                                                             \
     .fewest = fewest_,                                                           \
     .most = most_,                                                               \
     .options = (options_) | O_COMMON},
#include "client/cli/commands.def"
#undef SXC_COMMAND
};
const uint32_t sxc_command_count = SX_COUNT(sxc_commands);

/* ---- finding the command ---- */

/* Edit distance of two short words, for the nearest match. */
static uint32_t distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    uint32_t row[64];
    if (n >= SX_COUNT(row) || m >= SX_COUNT(row)) {
        return UINT32_MAX;
    }
    for (uint32_t j = 0; j <= m; j++) {
        row[j] = j;
    }
    for (uint32_t i = 1; i <= n; i++) {
        uint32_t diagonal = row[0];
        row[0] = i;
        for (uint32_t j = 1; j <= m; j++) {
            uint32_t change = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            uint32_t skip = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            row[j] = change < skip ? change : skip;
        }
    }
    return row[m];
}

/* Is a word at this distance what was meant? Else it is no slip of the fingers. */
static bool is_a_slip(const char *given, uint32_t least)
{
    return least <= (strlen(given) + 1) / 2;
}

const sxc_command *sxc_find_command(int argc, char *const *argv, int *words)
{
    for (*words = argc > 2 ? 2 : argc - 1; *words > 0; (*words)--) {
        char name[128];
        (void)snprintf(name, sizeof(name), *words == 2 ? "%s %s" : "%s", argv[1],
                       *words == 2 ? argv[2] : "");
        for (uint32_t i = 0; i < sxc_command_count; i++) {
            if (strcmp(sxc_commands[i].name, name) == 0) {
                return &sxc_commands[i];
            }
        }
    }
    return NULL;
}

bool sxc_begins_with_word(const sxc_command *command, const char *word)
{
    size_t n = strlen(word);
    return strncmp(command->name, word, n) == 0 && command->name[n] == ' ';
}

/* The commands of two words whose first is `given`, as "show, dump, check"; their number. */
static uint32_t second_words(const char *given, char *list, size_t size)
{
    size_t used = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < sxc_command_count; i++) {
        if (sxc_begins_with_word(&sxc_commands[i], given) && used < size) {
            used += (size_t)snprintf(list + used, size - used, "%s%s", count > 0 ? ", " : "",
                                     sxc_commands[i].name + strlen(given) + 1);
            count++;
        }
    }
    return count;
}

bool sxc_has_group(const char *word)
{
    char list[256];
    return second_words(word, list, sizeof(list)) > 0;
}

sx_code sxc_unknown_command(sx_ctx *cx, const char *given)
{
    char list[256];
    if (second_words(given, list, sizeof(list)) > 0) {
        return SX_FAIL(cx, SX_USAGE, "behind '%s' comes one of: %s", given, list);
    }
    char best[64] = "";
    uint32_t least = UINT32_MAX;
    for (uint32_t i = 0; i < sxc_command_count; i++) {
        char first[64];
        (void)snprintf(first, sizeof(first), "%.*s", (int)strcspn(sxc_commands[i].name, " "),
                       sxc_commands[i].name);
        uint32_t d = distance(given, first);
        if (d < least) {
            least = d;
            (void)snprintf(best, sizeof(best), "%s", first);
        }
    }
    if (is_a_slip(given, least)) {
        sx_hint(cx, "The nearest command is '%s'; 'symplex-client help' lists all.", best);
    } else {
        sx_hint(cx, "'symplex-client help' lists all commands.");
    }
    return SX_FAIL(cx, SX_USAGE, "unknown command '%.60s'", given);
}

/* ---- options ---- */

static sx_code take_option(sxc_cli *cli, const sxc_command *command, uint32_t index,
                           const char *value)
{
    const sxc_option_row *row = &sxc_options[index];
    sxc_values *values = &cli->option[index];
    if ((command->options >> index & 1) == 0) {
        return SX_FAIL(cli->cx, SX_USAGE, "'%s' takes no option --%s", command->name, row->name);
    }
    if (values->count > 0 && !row->repeated && row->argument != NULL) {
        return SX_FAIL(cli->cx, SX_USAGE, "option --%s given twice", row->name);
    }
    if (values->count == SXC_REPEAT_MAX) {
        return SX_FAIL(cli->cx, SX_USAGE, "option --%s given more than %d times", row->name,
                       SXC_REPEAT_MAX);
    }
    values->value[values->count++] = value != NULL ? value : "";
    return SX_OK;
}

static void option_tables(struct option *longs, char *shorts)
{
    size_t used = 0;
    shorts[used++] = ':'; /* a missing argument is told apart from an unknown option */
    for (uint32_t i = 0; i < SXC_OPTION_COUNT; i++) {
        longs[i] = (struct option){.name = sxc_options[i].name,
                                   .has_arg = sxc_options[i].argument != NULL ? required_argument
                                                                              : no_argument,
                                   .val = 256 + (int)i};
        if (sxc_options[i].letter != 0) {
            shorts[used++] = sxc_options[i].letter;
            if (sxc_options[i].argument != NULL) {
                shorts[used++] = ':';
            }
        }
    }
    longs[SXC_OPTION_COUNT] = (struct option){.name = NULL};
    shorts[used] = '\0';
}

/* Names the option of the command that is nearest, and where all are listed. */
static sx_code unknown_option(sx_ctx *cx, const sxc_command *command, const char *given)
{
    const char *word = given + strspn(given, "-");
    char name[48];
    (void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(word, "="), word);
    uint32_t best = SXC_HELP;
    for (uint32_t i = 0; i < SXC_OPTION_COUNT; i++) {
        if ((command->options >> i & 1) != 0 &&
            distance(name, sxc_options[i].name) < distance(name, sxc_options[best].name)) {
            best = i;
        }
    }
    if (is_a_slip(name, distance(name, sxc_options[best].name))) {
        sx_hint(cx, "The nearest option is --%s; 'symplex-client help %s' lists all.",
                sxc_options[best].name, command->name);
    } else {
        sx_hint(cx, "'symplex-client help %s' lists all options.", command->name);
    }
    return SX_FAIL(cx, SX_USAGE, "'%s' has no option %.60s", command->name, given);
}

/* How many words of options stand before the command, as in "symplex-client --socket PATH status". */
static sx_code count_leading(sx_ctx *cx, int argc, char **argv, int *leading)
{
    struct option longs[SXC_OPTION_COUNT + 1];
    char shorts[3 * SXC_OPTION_COUNT + 3] = "+"; /* stop at the first word that is no option */
    option_tables(longs, shorts + 1);
    opterr = 0;
    int choice;
    while ((choice = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
        if (choice == ':') {
            return SX_FAIL(cx, SX_USAGE, "option %.60s needs an argument", argv[optind - 1]);
        }
        if (choice == '?') {
            sx_hint(cx, "'symplex-client help' lists all commands, 'help COMMAND' its options.");
            return SX_FAIL(cx, SX_USAGE, "no command has the option %.60s", argv[optind - 1]);
        }
    }
    *leading = optind - 1;
    optind = 0; /* getopt_long starts from the beginning at its next call */
    return *leading + 1 < argc
               ? SX_OK
               : SX_FAIL(cx, SX_USAGE, "no command is given, only the option %.60s", argv[1]);
}

/* Moves the `words` of the command in front of the `leading` options. */
static void command_first(char **argv, int leading, int words)
{
    for (int word = 1; word <= words; word++) {
        char *moved = argv[leading + word];
        memmove(&argv[word + 1], &argv[word], (size_t)leading * sizeof(*argv));
        argv[word] = moved;
    }
}

static uint32_t option_index(int choice)
{
    for (uint32_t i = 0; i < SXC_OPTION_COUNT; i++) {
        if (choice == 256 + (int)i ||
            (sxc_options[i].letter != 0 && choice == sxc_options[i].letter)) {
            return i;
        }
    }
    return SXC_OPTION_COUNT;
}

static sx_code parse(sxc_cli *cli, const sxc_command *command, int argc, char **argv)
{
    struct option longs[SXC_OPTION_COUNT + 1];
    char shorts[3 * SXC_OPTION_COUNT + 2];
    option_tables(longs, shorts);
    opterr = 0;
    int choice;
    while ((choice = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
        uint32_t index = option_index(choice);
        if (choice == ':') {
            return SX_FAIL(cli->cx, SX_USAGE, "option %.60s needs an argument", argv[optind - 1]);
        }
        if (index == SXC_OPTION_COUNT) {
            return unknown_option(cli->cx, command, argv[optind - 1]);
        }
        SX_TRY(take_option(cli, command, index, optarg));
    }
    for (int i = optind; i < argc; i++) {
        if (cli->argument_count == command->most ||
            cli->argument_count == SX_COUNT(cli->argument)) {
            return SX_FAIL(cli->cx, SX_USAGE,
                           "'%s' takes at most %u argument%s; '%.60s' is one too many",
                           command->name, command->most, command->most == 1 ? "" : "s", argv[i]);
        }
        cli->argument[cli->argument_count++] = argv[i];
    }
    cli->json = sxc_given(cli, SXC_JSON);
    if (!sxc_given(cli, SXC_HELP) && cli->argument_count < command->fewest) {
        return SX_FAIL(cli->cx, SX_USAGE, "'%s' needs %s", command->name, command->arguments);
    }
    return SX_OK;
}

/* ---- main ---- */

/* An error in one line. What it quotes of a file may be any bytes, which must not reach a terminal. */
static void put_plain(const char *text)
{
    for (const char *p = text; *p != '\0'; p++) {
        (void)fputc((unsigned char)*p < ' ' || *p == 0x7f ? '?' : *p, stderr);
    }
    (void)fputc('\n', stderr);
}

static int finish(sx_ctx *cx, sx_code code, bool json)
{
    if (code == SX_OK &&
        (fflush(stdout) != 0 || ferror(stdout) != 0)) { /* printed, and not arrived */
        code = SX_FAIL(cx, SX_INPUT, "standard output: cannot be written: %s", strerror(errno));
    }
    if (code == SX_OK) {
        return 0;
    }
    const sx_error *error = &cx->error;
    if (json) {
        sx_buf text;
        sx_buf_init(&text, 65536);
        sxc_json_begin(&text, "error");
        sxc_json_text(&text, "code", sx_span_of(sx_code_name(code)));
        sxc_json_text(&text, "message", sx_span_of(error->text));
        sxc_json_text(&text, "hint", sx_span_of(error->hint));
        sxc_json_bool(&text, "retry", sx_code_retry(code));
        sxc_json_int(&text, "exit", sx_code_exit(code));
        sxc_json_end(&text);
        printf("%.*s\n", (int)text.len, (const char *)text.ptr);
        sx_buf_fini(&text);
    }
    (void)fputs("symplex-client: ", stderr);
    put_plain(error->text[0] != '\0' ? error->text : sx_code_text(code));
    if (error->hint[0] != '\0') {
        (void)fprintf(stderr, "%s\n", error->hint);
    }
    return sx_code_exit(code);
}

static bool asks_for_help(int argc, char **argv)
{
    bool asks = false;
    for (int i = 1; i < argc; i++) {
        asks = asks || strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0;
    }
    return asks;
}

int main(int argc, char **argv)
{
    static sx_ctx cx;
    static sxc_cli cli;
    (void)signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error of write, not the end */
    sx_ctx_init(&cx, (size_t)16 << 30);
    cx.fuel = UINT64_MAX;
    cli.cx = &cx;
    cli.start_us = sxc_now_us();
    for (int i = 1; i < argc; i++) { /* errors of the command line are told as JSON too */
        cli.json = cli.json || strcmp(argv[i], "--json") == 0;
    }
    if (argc < 2) {
        (void)sxc_print_overview(&cli);
        return sx_code_exit(SX_USAGE);
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        return finish(&cx, sxc_print_overview(&cli), false);
    }
    if (strcmp(argv[1], "--version") == 0) {
        return finish(&cx, sxc_cmd_version(&cli), false);
    }
    int words, leading;
    sx_code code = count_leading(&cx, argc, argv, &leading);
    if (code != SX_OK) {
        return finish(&cx, code, cli.json);
    }
    const sxc_command *command = sxc_find_command(argc - leading, argv + leading, &words);
    if (command == NULL) {
        const char *word = argv[leading + 1];
        code = asks_for_help(argc, argv) && sxc_has_group(word) ? sxc_print_group(&cli, word)
                                                                : sxc_unknown_command(&cx, word);
        return finish(&cx, code, cli.json);
    }
    command_first(argv, leading, words);
    code = parse(&cli, command, argc - words, argv + words);
    if (code == SX_OK && sxc_given(&cli, SXC_HELP)) {
        sxc_print_command_help(command);
        return finish(&cx, SX_OK, false);
    }
    code = code == SX_OK ? command->run(&cli) : code;
    int status = finish(&cx, code, cli.json && !cli.printed);
    sx_ctx_fini(&cx);
    return status;
}
