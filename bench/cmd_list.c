/* bench list: what is built in. */
#include "bench/cli.h"
#include "bench/platform_file.h"
#include "common/comm.h"
#include "kernels/device_plugin.h"
#include "kernels/model.h"
#include "strategies/strategy.h"

#include <stdio.h>
#include <string.h>

static void list_strategies(void)
{
    for (const struct strategy *const *s = strategy_list(); *s; s++)
        printf("%-14s %-6s %s%s%s%s\n", (*s)->name, (*s)->freshness == FRESH ? "exact" : "stale",
               (*s)->summary, (*s)->paper ? " (" : "", (*s)->paper ? (*s)->paper : "",
               (*s)->paper ? ")" : "");
}

static void list_models(void)
{
    for (const char *const *name = model_presets(); *name; name++)
        printf("%-14s preset, random weights drawn from --seed\n", *name);
    printf("%-14s weights: a .safetensors file, or a folder with config.json\n", "FILE|DIR");
}

static void list_platforms(void)
{
    struct platform platform;
    printf("%-16s what this program runs on, measured as it is\n", "host");
    for (const char *const *name = platform_names(); *name; name++) {
        if (platform_load(*name, &platform) == OK)
            printf("%-16s %s (--device sim)\n", *name, platform.summary);
        else
            printf("%-16s cannot be read: %s\n", *name, status_first()->text);
        status_clear();
    }
}

static void list_devices(void)
{
    bool has_plugin = device_plugin_load() == OK;
    for (const struct device_ops *const *d = device_list(); *d; d++)
        printf("%-14s %s\n", (*d)->name, (*d)->summary);
    if (!has_plugin)
        printf("%-14s not here: %s\n", "cuda", status_first()->text);
    status_clear();
}

static void list_transports(void)
{
    if (device_plugin_load() != OK)
        status_clear();
    for (const struct comm_ops *const *t = comm_transports(); *t; t++)
        printf("%-14s %s\n", (*t)->name, (*t)->summary);
}

static const struct {
    const char *kind;
    void (*list)(void);
} kinds[] = {
    {"strategies", list_strategies}, {"models", list_models},         {"platforms", list_platforms},
    {"devices", list_devices},       {"transports", list_transports},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static enum status run(const struct cli *cli)
{
    for (size_t i = 0; i < KINDS; i++) {
        if (cli->operand_count == 0)
            printf("%s%s\n", i ? "\n" : "", kinds[i].kind);
        if (cli->operand_count == 0 || strcmp(cli->operands[0], kinds[i].kind) == 0) {
            kinds[i].list();
            if (cli->operand_count > 0)
                return OK;
        }
    }
    if (cli->operand_count == 0)
        return OK;
    return FAIL(ERR_USAGE, "%.60s: cannot be listed; one of strategies, models, platforms, devices, "
                           "transports", cli->operands[0]);
}

const struct command command_list = {
    .name = "list",
    .summary = "what is built in: strategies, models, platforms, devices, transports",
    .synopsis = "[strategies|models|platforms|devices|transports]",
    .description = "Prints the names that options accept, each with a line on what it is. Without a "
                   "kind, prints all of them.",
    .examples = "  bench list strategies\n",
    .operands_max = 1,
    .run = run,
};
