/* main.c - symplexd with the compiler of core/. */
#include "daemon/daemon.h"

int main(int argc, char **argv)
{
    return sxd_main(argc, argv, &sxd_backend_core);
}
