/* report.h - the report that a module carries, as JSON. */
#ifndef SX_CLIENT_REPORT_H
#define SX_CLIENT_REPORT_H
#include "protocol/module.h"

/* Fields of an object: the search of the e-graph, what each rule did, how it runs on a mesh (nothing without one),
 * stages, and the chain of rewrites. */
void sxc_report_json(sx_buf *json, const sx_module *module);
#endif
