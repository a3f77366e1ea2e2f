/* Part 3 of 4 of the rules on random instances. */
#define SHARD 2u
#include "tests/core/egraph/rule_shard.h"
