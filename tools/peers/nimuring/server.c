/* The echo servers of document 003 in nimuring's own sources, one of TCP and one of UDP: each module of Nim is run by NimMain. */
#include <stddef.h>

#include "../contract.h"

const char *const modes[] = {"no-sqpoll", NULL};

void NimMain(void);

int serve(const char *mode)
{
    (void)mode; /* Each is a program of its own: see build. */
    need_ring();
    NimMain();
    return 1;
}
