/* The echo servers of document 003 in nimuring's own sources, one for TCP and one for UDP. NimMain runs the Nim module. */
#include <stddef.h>

#include "../contract.h"

const char *const modes[] = {"no-sqpoll", NULL};

void NimMain(void);

int serve(const char *mode)
{
    (void)mode; /* Each mode is a separate program: see build. */
    need_ring();
    NimMain();
    return 1;
}
