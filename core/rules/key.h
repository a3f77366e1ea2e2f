/* key.h - the digest of the table of rules, which is part of the key of all that was made with it. Nothing of
 * the e-graph is needed to know it. */
#ifndef SX_CORE_RULES_KEY_H
#define SX_CORE_RULES_KEY_H
#include "core/base/hash.h"

/* Digests the names, classes, effects on the range and sides of all rules. */
sx_key sx_rules_key(void);
#endif
