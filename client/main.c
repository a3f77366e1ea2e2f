/* main.c - symplex-client: finds the command, parses its options, prints its error. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli.h"

#define O(name) ((uint64_t)1 << SXC_##name)
#define O_COMMON (O(HELP) | O(JSON))

const sxc_option_row sxc_options[SXC_OPTION_COUNT] = {
#define SXC_OPTION(enumerator, name_, letter_, argument_, repeated_, help_) \
    [SXC_##enumerator] = {.name = name_,                                    \
                          .argument = argument_,                            \
                          .help = help_,                                    \
                          .letter = letter_,                                \
                          .repeated = repeated_},
#include "client/options.def"
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
#include "client/commands.def"
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

/* The command named by the first one or two words; *words is how many it took. */
static const sxc_command *find_command(int argc, char **argv, int *words)
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

static sx_code unknown_command(sx_ctx *cx, const char *given)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < sxc_command_count; i++) {
        if (distance(given, sxc_commands[i].name) < distance(given, sxc_commands[best].name)) {
            best = i;
        }
    }
    sx_hint(cx, "The nearest command is '%s'; 'symplex-client help' lists all.",
            sxc_commands[best].name);
    return SX_FAIL(cx, SX_USAGE, "unknown command '%.60s'", given);
}

/* ---- options ---- */

static void print_command_help(const sxc_command *command)
{
    printf("usage: symplex-client %s%s%s [options]\n\n%s\n\n", command->name,
           command->arguments[0] ? " " : "", command->arguments, command->help);
    for (uint32_t i = 0; i < SXC_OPTION_COUNT; i++) {
        if ((command->options >> i & 1) == 0) {
            continue;
        }
        const sxc_option_row *row = &sxc_options[i];
        char left[48];
        (void)snprintf(left, sizeof(left), "%c%c%s --%s%s%s", row->letter ? '-' : ' ',
                       row->letter ? row->letter : ' ', row->letter ? "," : " ", row->name,
                       row->argument ? " " : "", row->argument ? row->argument : "");
        printf("  %-28s %s%s\n", left, row->help, row->repeated ? " (may be repeated)" : "");
    }
}

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
            sx_hint(cli->cx, "'symplex-client help %s' lists its options.", command->name);
            return SX_FAIL(cli->cx, SX_USAGE, "unknown option %.60s", argv[optind - 1]);
        }
        SX_TRY(take_option(cli, command, index, optarg));
    }
    for (int i = optind; i < argc; i++) {
        if (cli->argument_count == command->most ||
            cli->argument_count == SX_COUNT(cli->argument)) {
            return SX_FAIL(cli->cx, SX_USAGE,
                           "'%s' takes at most %u arguments; '%.60s' is one too many",
                           command->name, command->most, argv[i]);
        }
        cli->argument[cli->argument_count++] = argv[i];
    }
    cli->json = sxc_given(cli, SXC_JSON);
    if (!sxc_given(cli, SXC_HELP) && cli->argument_count < command->fewest) {
        return SX_FAIL(cli->cx, SX_USAGE, "'%s' needs %s", command->name, command->arguments);
    }
    return SX_OK;
}

/* ---- help ---- */

static void print_completion(void)
{
    printf("# bash completion of symplex-client\n_symplex_client() {\n    local words=\"");
    for (uint32_t i = 0; i < sxc_command_count; i++) {
        printf("%s%s", i > 0 ? " " : "", sxc_commands[i].name);
    }
    for (uint32_t i = 0; i < SXC_OPTION_COUNT; i++) {
        printf(" --%s", sxc_options[i].name);
    }
    printf("\"\n    COMPREPLY=($(compgen -f -W \"$words\" -- \"${COMP_WORDS[COMP_CWORD]}\"))\n}\n"
           "complete -o filenames -F _symplex_client symplex-client\n");
}

static void print_man(void)
{
    printf(".TH SYMPLEX-CLIENT 1 \"\" \"symplexd %s\"\n.SH NAME\nsymplex-client \\- compile, run "
           "and inspect tensor programs\n"
           ".SH SYNOPSIS\n.B symplex-client\n.I command\n[options] [arguments]\n.SH COMMANDS\n",
           SX_VERSION_TEXT);
    for (uint32_t i = 0; i < sxc_command_count; i++) {
        printf(".TP\n.B %s %s\n%s\n", sxc_commands[i].name, sxc_commands[i].arguments,
               sxc_commands[i].help);
    }
    printf(".SH OPTIONS\n");
    for (uint32_t i = 0; i < SXC_OPTION_COUNT; i++) {
        printf(".TP\n.B \\-\\-%s %s\n%s\n", sxc_options[i].name,
               sxc_options[i].argument ? sxc_options[i].argument : "", sxc_options[i].help);
    }
    printf(".SH EXIT STATUS\n");
    for (uint32_t i = 0; i < SX_CODE_COUNT; i++) {
        printf(".TP\n.B %d\n%s\n", sx_code_exit((sx_code)i), sx_code_text((sx_code)i));
    }
}

static sx_code print_overview(sxc_cli *cli)
{
    if (cli->json) {
        sx_buf json;
        sx_buf_init(&json, (size_t)1 << 20);
        sxc_json_begin(&json, "help");
        sxc_json_open(&json, "commands", '[');
        for (uint32_t i = 0; i < sxc_command_count; i++) {
            sxc_json_open(&json, NULL, '{');
            sxc_json_text(&json, "name", sx_span_of(sxc_commands[i].name));
            sxc_json_text(&json, "arguments", sx_span_of(sxc_commands[i].arguments));
            sxc_json_text(&json, "help", sx_span_of(sxc_commands[i].help));
            sxc_json_close(&json, '}');
        }
        sxc_json_close(&json, ']');
        sxc_json_end(&json);
        sx_code code = sxc_put(cli, &json);
        sx_buf_fini(&json);
        return code;
    }
    printf("usage: symplex-client COMMAND [options] [arguments]\n\n");
    for (uint32_t i = 0; i < sxc_command_count; i++) {
        printf("  %-14s %s\n", sxc_commands[i].name, sxc_commands[i].help);
    }
    printf("\nEvery command takes --help and --json. Exit status: 0 done, 1 the answer is no, 2 "
           "usage, 3 no daemon,\n"
           "4 refused input, 5 budget, busy or timeout, 6 broken, 130 interrupted.\n");
    return SX_OK;
}

sx_code sxc_cmd_help(sxc_cli *cli)
{
    if (cli->argument_count == 0) {
        return print_overview(cli);
    }
    if (strcmp(cli->argument[0], "completion") == 0) {
        print_completion();
        return SX_OK;
    }
    if (strcmp(cli->argument[0], "man") == 0) {
        print_man();
        return SX_OK;
    }
    char *words[3] = {NULL, NULL, NULL};
    char copy[2][64];
    for (uint32_t i = 0; i < cli->argument_count && i < 2; i++) {
        (void)snprintf(copy[i], sizeof(copy[i]), "%s", cli->argument[i]);
        words[1 + i] = copy[i];
    }
    int taken;
    const sxc_command *command = find_command(1 + (int)cli->argument_count, words, &taken);
    if (command == NULL) {
        return unknown_command(cli->cx, cli->argument[0]);
    }
    print_command_help(command);
    return SX_OK;
}

/* ---- main ---- */

static int finish(const sx_ctx *cx, sx_code code, bool json)
{
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
    (void)fprintf(stderr, "symplex-client: %s\n",
                  error->text[0] != '\0' ? error->text : sx_code_text(code));
    if (error->hint[0] != '\0') {
        (void)fprintf(stderr, "%s\n", error->hint);
    }
    return sx_code_exit(code);
}

int main(int argc, char **argv)
{
    static sx_ctx cx;
    static sxc_cli cli;
    sx_ctx_init(&cx, (size_t)16 << 30);
    cx.fuel = UINT64_MAX;
    cli.cx = &cx;
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        (void)print_overview(&cli);
        return argc < 2 ? sx_code_exit(SX_USAGE) : 0;
    }
    if (strcmp(argv[1], "--version") == 0) {
        return finish(&cx, sxc_cmd_version(&cli), false);
    }
    int words;
    const sxc_command *command = find_command(argc, argv, &words);
    if (command == NULL) {
        return finish(&cx, unknown_command(&cx, argv[1]), false);
    }
    sx_code code = parse(&cli, command, argc - words, argv + words);
    if (code == SX_OK && sxc_given(&cli, SXC_HELP)) {
        print_command_help(command);
        return 0;
    }
    code = code == SX_OK ? command->run(&cli) : code;
    int status = finish(&cx, code, cli.json && !cli.printed);
    sx_ctx_fini(&cx);
    return status;
}
