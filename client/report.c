/* report.c - see report.h. */
#include "client/report.h"

#include "client/json.h"

static void json_sharding(sx_buf *json, const sx_module *module)
{
    if (module->sharding_count == 0) {
        return;
    }
    const sx_module_sharding *sharding = &module->sharding[0];
    sxc_json_open(json, "sharding", '{');
    sxc_json_text(json, "mesh", sx_module_string(module, sharding->mesh));
    sxc_json_bool(json, "planned", sharding->planned != 0);
    if (sharding->planned != 0) {
        sxc_json_bool(json, "proven", sharding->proven != 0);
        sxc_json_int(json, "collectives", (int64_t)sharding->collectives);
        sxc_json_real(json, "collective_bytes", sharding->collective_bytes);
        sxc_json_real(json, "collective_ns", sharding->collective_ns);
        sxc_json_real(json, "compute_ns", sharding->compute_ns);
        sxc_json_int(json, "input_collectives", (int64_t)sharding->input_collectives);
        sxc_json_real(json, "input_collective_bytes", sharding->input_collective_bytes);
        sxc_json_real(json, "input_collective_ns", sharding->input_collective_ns);
        sxc_json_real(json, "input_compute_ns", sharding->input_compute_ns);
    }
    sxc_json_open(json, "steps", '[');
    for (uint64_t i = 0; i < module->step_count; i++) {
        const sx_module_step *step = &module->step[i];
        sxc_json_open(json, NULL, '{');
        sxc_json_text(json, "value", sx_module_string(module, step->value));
        sxc_json_text(json, "what", sx_module_string(module, step->what));
        sxc_json_text(json, "axis", sx_module_string(module, step->axis));
        sxc_json_text(json, "from", sx_module_string(module, step->from));
        sxc_json_text(json, "to", sx_module_string(module, step->to));
        sxc_json_text(json, "places", sx_module_string(module, step->places));
        sxc_json_text(json, "local", sx_module_string(module, step->local));
        sxc_json_int(json, "local_bytes", (int64_t)step->local_bytes);
        sxc_json_real(json, "sent_bytes", step->sent_bytes);
        sxc_json_real(json, "estimate_ns", step->ns);
        sxc_json_close(json, '}');
    }
    sxc_json_close(json, ']');
    sxc_json_close(json, '}');
}

static void json_search(sx_buf *json, const sx_module *module)
{
    for (uint64_t i = 0; i < module->search_count; i++) {
        const sx_module_search *search = &module->search[i];
        sxc_json_open(json, "search", '{');
        sxc_json_text(json, "stop", sx_module_string(module, search->stop));
        sxc_json_int(json, "rounds", (int64_t)search->rounds);
        sxc_json_int(json, "nodes", (int64_t)search->nodes);
        sxc_json_int(json, "classes", (int64_t)search->classes);
        sxc_json_int(json, "fuel", (int64_t)search->fuel);
        sxc_json_real(json, "input_estimate_ns", search->input_cost_ns);
        sxc_json_real(json, "estimate_ns", search->cost_ns);
        sxc_json_real(json, "lower_bound_ns", search->bound_ns);
        sxc_json_bool(json, "proven", search->proven != 0);
        sxc_json_int(json, "parts", (int64_t)search->parts);
        sxc_json_int(json, "uses", (int64_t)search->uses);
        sxc_json_close(json, '}');
    }
    sxc_json_open(json, "rules", '[');
    for (uint64_t i = 0; i < module->rule_count; i++) {
        const sx_module_rule *rule = &module->rule[i];
        sxc_json_open(json, NULL, '{');
        sxc_json_text(json, "name", sx_module_string(module, rule->name));
        sxc_json_text(json, "class", sx_module_string(module, rule->rule_class));
        sxc_json_int(json, "matches", (int64_t)rule->matches);
        sxc_json_int(json, "unions", (int64_t)rule->unions);
        sxc_json_close(json, '}');
    }
    sxc_json_close(json, ']');
}

void sxc_report_json(sx_buf *json, const sx_module *module)
{
    json_search(json, module);
    json_sharding(json, module);
    sxc_json_open(json, "stages", '[');
    for (uint64_t i = 0; i < module->stage_count; i++) {
        const sx_module_stage *stage = &module->stage[i];
        sxc_json_open(json, NULL, '{');
        sxc_json_text(json, "name", sx_module_string(module, stage->name));
        sxc_json_int(json, "items", (int64_t)stage->items);
        sxc_json_int(json, "fuel", (int64_t)stage->fuel);
        sxc_json_text(json, "stop", sx_module_string(module, stage->stop));
        sxc_json_close(json, '}');
    }
    sxc_json_close(json, ']');
    sxc_json_open(json, "rewrites", '[');
    for (uint64_t i = 0; i < module->rewrite_count; i++) {
        const sx_module_rewrite *rewrite = &module->rewrite[i];
        sxc_json_open(json, NULL, '{');
        sxc_json_text(json, "rule", sx_module_string(module, rewrite->rule));
        sxc_json_text(json, "before", sx_module_string(module, rewrite->before));
        sxc_json_text(json, "after", sx_module_string(module, rewrite->after));
        sxc_json_close(json, '}');
    }
    sxc_json_close(json, ']');
}
