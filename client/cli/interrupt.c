#include "client/cli/interrupt.h"

static const int numbers[SXC_INTERRUPTS] = {SIGINT, SIGTERM, SIGHUP};
static volatile sig_atomic_t interrupted;

static void on_interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

bool sxc_interrupted(void)
{
    return interrupted != 0;
}

static bool asks_to_stop(void *self)
{
    (void)self;
    return sxc_interrupted();
}

void sxc_interrupt_begin(sx_ctx *cx, sxc_interrupt *interrupt)
{
    const struct sigaction action = {.sa_handler = on_interrupt};
    interrupted = 0;
    for (uint32_t i = 0; i < SXC_INTERRUPTS; i++) {
        (void)sigaction(numbers[i], &action, &interrupt->before[i]);
        if (interrupt->before[i].sa_handler == SIG_IGN) {
            (void)sigaction(numbers[i], &interrupt->before[i], NULL);
        }
    }
    cx->cancelled = asks_to_stop;
}

void sxc_interrupt_end(sx_ctx *cx, const sxc_interrupt *interrupt)
{
    cx->cancelled = NULL;
    for (uint32_t i = 0; i < SXC_INTERRUPTS; i++) {
        (void)sigaction(numbers[i], &interrupt->before[i], NULL);
    }
}
