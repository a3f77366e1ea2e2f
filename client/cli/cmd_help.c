/* cmd_help.c - help, the bash completion and the man page, printed from commands.def, options.def and
 * codes.def. deploy/ holds the last two as files; a test compares them. */
#include <stdio.h>
#include <string.h>

#include "client/cli/cli.h"

typedef struct {
    const char *command, *line, *help;
} example;
static const example examples[] = {
#define SXC_EXAMPLE(command, line, help) {command, line, help},
#include "client/cli/examples.def"
#undef SXC_EXAMPLE
};

/* ---- help ---- */

static void print_examples(const sxc_command *command)
{
    bool any = false;
    for (uint32_t i = 0; i < SX_COUNT(examples); i++) {
        if (strcmp(examples[i].command, command->name) == 0) {
            printf("%s  symplex-client %s %s\n      %s\n", any ? "" : "\nexamples:\n",
                   command->name, examples[i].line, examples[i].help);
            any = true;
        }
    }
}

/* A line for each command; `group` not NULL: those alone that have it as their first word. */
static void print_commands(const char *group)
{
    for (uint32_t i = 0; i < sxc_command_count; i++) {
        if (group == NULL || sxc_begins_with_word(&sxc_commands[i], group)) {
            printf("  %-14s %s\n", sxc_commands[i].name, sxc_commands[i].help);
        }
    }
}

void sxc_print_command_help(const sxc_command *command)
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
    print_examples(command);
    if (sxc_has_group(command->name)) {
        printf("\nalso:\n");
        print_commands(command->name);
    }
}

static void command_json(const sxc_command *command, sx_buf *json)
{
    sxc_json_text(json, "name", sx_span_of(command->name));
    sxc_json_text(json, "arguments", sx_span_of(command->arguments));
    sxc_json_text(json, "help", sx_span_of(command->help));
    sxc_json_open(json, "options", '[');
    for (uint32_t i = 0; i < SXC_OPTION_COUNT; i++) {
        if ((command->options >> i & 1) != 0) {
            sxc_json_text(json, NULL, sx_span_of(sxc_options[i].name));
        }
    }
    sxc_json_close(json, ']');
    sxc_json_open(json, "examples", '[');
    for (uint32_t i = 0; i < SX_COUNT(examples); i++) {
        if (strcmp(examples[i].command, command->name) == 0) {
            sxc_json_text(json, NULL, sx_span_of(examples[i].line));
        }
    }
    sxc_json_close(json, ']');
}

/* `only` not NULL: that command; else all of them, or those of `group`. */
static sx_code put_json(sxc_cli *cli, const sxc_command *only, const char *group)
{
    sx_buf json;
    sx_buf_init(&json, (size_t)1 << 20);
    sxc_json_begin(&json, only != NULL ? "command" : "help");
    if (only != NULL) {
        command_json(only, &json);
    } else {
        sxc_json_open(&json, "commands", '[');
        for (uint32_t i = 0; i < sxc_command_count; i++) {
            if (group != NULL && !sxc_begins_with_word(&sxc_commands[i], group)) {
                continue;
            }
            sxc_json_open(&json, NULL, '{');
            command_json(&sxc_commands[i], &json);
            sxc_json_close(&json, '}');
        }
        sxc_json_close(&json, ']');
    }
    sxc_json_end(&json);
    sx_code code = sxc_put(cli, &json);
    sx_buf_fini(&json);
    return code;
}

sx_code sxc_print_overview(sxc_cli *cli)
{
    if (cli->json) {
        return put_json(cli, NULL, NULL);
    }
    printf("usage: symplex-client COMMAND [options] [arguments]\n\n");
    print_commands(NULL);
    printf("\nEvery command takes --help and --json. Exit status: 0 done, 1 the answer is no, 2 "
           "usage, 3 no daemon,\n"
           "4 refused input, 5 budget, busy or timeout, 6 broken, 130 interrupted.\n");
    return SX_OK;
}

sx_code sxc_print_group(sxc_cli *cli, const char *word)
{
    if (cli->json) {
        return put_json(cli, NULL, word);
    }
    printf("usage: symplex-client %s COMMAND [options] [arguments]\n\n", word);
    print_commands(word);
    printf("\n'symplex-client help %s COMMAND' has the options of one.\n", word);
    return SX_OK;
}

/* ---- completion ---- */

/* Does an earlier command begin with the same word? */
static bool word_was_seen(uint32_t index, size_t length)
{
    for (uint32_t i = 0; i < index; i++) {
        const char *name = sxc_commands[i].name;
        if (strcspn(name, " ") == length && memcmp(name, sxc_commands[index].name, length) == 0) {
            return true;
        }
    }
    return false;
}

static void print_first_words(void)
{
    for (uint32_t i = 0; i < sxc_command_count; i++) {
        size_t length = strcspn(sxc_commands[i].name, " ");
        if (!word_was_seen(i, length)) {
            printf("%s%.*s", i > 0 ? " " : "", (int)length, sxc_commands[i].name);
        }
    }
}

/* "module "*) words="show dump check" ;; for each first word of two-word commands */
static void print_second_words(void)
{
    for (uint32_t i = 0; i < sxc_command_count; i++) {
        const char *name = sxc_commands[i].name;
        size_t length = strcspn(name, " ");
        if (name[length] == '\0' || word_was_seen(i, length)) {
            continue;
        }
        printf("            \"%.*s \"*) words=\"", (int)length, name);
        for (uint32_t k = i; k < sxc_command_count; k++) {
            if (strncmp(sxc_commands[k].name, name, length + 1) == 0) {
                printf("%s%s", k > i ? " " : "", sxc_commands[k].name + length + 1);
            }
        }
        printf("\" ;;\n");
    }
}

static void print_command_options(bool two_words)
{
    for (uint32_t i = 0; i < sxc_command_count; i++) {
        const sxc_command *command = &sxc_commands[i];
        if ((strchr(command->name, ' ') != NULL) != two_words) {
            continue;
        }
        printf("            \"%s%s) words=\"", command->name, two_words ? "\"" : " \"*");
        bool first = true;
        for (uint32_t k = 0; k < SXC_OPTION_COUNT; k++) {
            if ((command->options >> k & 1) != 0) {
                printf("%s--%s", first ? "" : " ", sxc_options[k].name);
                first = false;
            }
        }
        printf("\" ;;\n");
    }
}

static void print_completion(void)
{
    printf("# bash completion of symplex-client; printed by 'symplex-client help completion'\n"
           "_symplex_client() {\n"
           "    local current=\"${COMP_WORDS[COMP_CWORD]}\" words=\"\"\n"
           "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
           "        words=\"");
    print_first_words();
    printf("\"\n"
           "        mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
           "        return\n"
           "    fi\n"
           "    if [ \"$COMP_CWORD\" -eq 2 ]; then\n"
           "        case \"${COMP_WORDS[1]} \" in\n");
    print_second_words();
    printf("        esac\n"
           "    fi\n"
           "    if [ -z \"$words\" ]; then\n"
           "        case \"${COMP_WORDS[1]} ${COMP_WORDS[2]}\" in\n");
    print_command_options(true);
    print_command_options(false);
    printf("        esac\n"
           "    fi\n"
           "    mapfile -t COMPREPLY < <(compgen -f -W \"$words\" -- \"$current\")\n"
           "}\n"
           "complete -o filenames -F _symplex_client symplex-client\n");
}

/* ---- man page ---- */

/* Text of a table as roff: a hyphen that is typed stays one, a dot at the start of a line is no request. */
static void print_roff(const char *text)
{
    if (*text == '.' || *text == '\'') {
        printf("\\&");
    }
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '-': printf("\\-"); break;
        case '\\': printf("\\e"); break;
        default: printf("%c", *text);
        }
    }
}

static void print_man_commands(void)
{
    for (uint32_t i = 0; i < sxc_command_count; i++) {
        const sxc_command *command = &sxc_commands[i];
        printf(".TP\n.B %s", command->name);
        if (command->arguments[0] != '\0') {
            printf(" \\fR");
            print_roff(command->arguments);
        }
        printf("\n");
        print_roff(command->help);
        printf("\n.br\nOptions:");
        for (uint32_t k = 0; k < SXC_OPTION_COUNT; k++) {
            if ((command->options >> k & 1) != 0) {
                printf(" \\fB\\-\\-");
                print_roff(sxc_options[k].name);
                printf("\\fR");
            }
        }
        printf("\n");
    }
}

static void print_man_options(void)
{
    for (uint32_t i = 0; i < SXC_OPTION_COUNT; i++) {
        const sxc_option_row *row = &sxc_options[i];
        printf(".TP\n.B ");
        if (row->letter != 0) {
            printf("\\-%c\\fR, \\fB", row->letter);
        }
        printf("\\-\\-");
        print_roff(row->name);
        if (row->argument != NULL) {
            printf(" \\fI%s", row->argument);
        }
        printf("\n");
        print_roff(row->help);
        printf("%s\n", row->repeated ? " (may be repeated)" : "");
    }
}

static void print_man_examples(void)
{
    printf(".SH EXAMPLES\n");
    for (uint32_t i = 0; i < SX_COUNT(examples); i++) {
        printf(".TP\n.B symplex\\-client ");
        print_roff(examples[i].command);
        printf(" ");
        print_roff(examples[i].line);
        printf("\n");
        print_roff(examples[i].help);
        printf("\n");
    }
}

static void print_man(void)
{
    printf(".TH SYMPLEX\\-CLIENT 1 \"\" \"symplexd %s\" \"User Commands\"\n"
           ".SH NAME\nsymplex\\-client \\- compile, run and inspect tensor programs\n"
           ".SH SYNOPSIS\n.B symplex\\-client\n.I command\n[options] [arguments]\n"
           ".SH DESCRIPTION\n"
           "Compiles ONNX models and programs in the text form of symplexd to modules, through the "
           "daemon\n.BR symplexd (8)\nwhere one answers and in a process of its own where none "
           "does, and runs and inspects modules.\nData goes to standard output, talk to standard "
           "error.\nEvery command takes \\fB\\-\\-help\\fR and \\fB\\-\\-json\\fR.\n"
           ".SH COMMANDS\n",
           SX_VERSION_TEXT);
    print_man_commands();
    printf(".SH OPTIONS\n");
    print_man_options();
    printf(".SH EXIT STATUS\n");
    for (uint32_t i = 0; i < SX_CODE_COUNT; i++) {
        printf(".TP\n.B %d\n", sx_code_exit((sx_code)i));
        print_roff(sx_code_text((sx_code)i));
        printf("\n");
    }
    printf(
        ".SH ENVIRONMENT\n"
        ".TP\n.B SYMPLEX_SOCKET\nSocket of the daemon.\n"
        ".TP\n.B SYMPLEX_TRUST_UID\nA user id beside the own one and 0 whose daemon is believed.\n"
        ".TP\n.B XDG_RUNTIME_DIR\nWithout SYMPLEX_SOCKET the socket is symplex/d.sock in this "
        "directory; without either,\n/tmp/symplex\\-UID/d.sock.\n"
        ".TP\n.B SYMPLEX_ISA_MAX\nThe processor is treated as if it had no instructions above this "
        "level: x86\\-64\\-v3 (AVX2) or x86\\-64\\-v4 (AVX\\-512).\n"
        ".TP\n.B SYMPLEX_CUDA_DRIVER\nThe CUDA driver library, with its whole path, instead of the "
        "libcuda.so.1 that the system's loader\nfinds. Nobody but this user and the superuser may "
        "be able "
        "to exchange the file.\n");
    print_man_examples();
}

/* ---- command ---- */

sx_code sxc_cmd_help(sxc_cli *cli)
{
    if (cli->argument_count == 0) {
        return sxc_print_overview(cli);
    }
    if (strcmp(cli->argument[0], "completion") == 0 || strcmp(cli->argument[0], "man") == 0) {
        if (cli->json) {
            return SX_FAIL(cli->cx, SX_USAGE, "help %s prints a file, it has no JSON form",
                           cli->argument[0]);
        }
        if (cli->argument[0][0] == 'c') {
            print_completion();
        } else {
            print_man();
        }
        return SX_OK;
    }
    char *words[3] = {NULL, NULL, NULL};
    char copy[2][64];
    for (uint32_t i = 0; i < cli->argument_count && i < 2; i++) {
        (void)snprintf(copy[i], sizeof(copy[i]), "%s", cli->argument[i]);
        words[1 + i] = copy[i];
    }
    int taken;
    const sxc_command *command = sxc_find_command(1 + (int)cli->argument_count, words, &taken);
    if (command == NULL && cli->argument_count == 1 && sxc_has_group(cli->argument[0])) {
        return sxc_print_group(cli, cli->argument[0]);
    }
    if (command == NULL) {
        return sxc_unknown_command(cli->cx, cli->argument[0]);
    }
    if (cli->json) {
        return put_json(cli, command, NULL);
    }
    sxc_print_command_help(command);
    return SX_OK;
}
