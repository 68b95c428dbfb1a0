/* The echo server of document 004, in rocket's own source: a fiber for each connection, or in the mode "threads" a thread. */
#define main rocket_main
#include <echo_server.c>
#undef main

#include "../contract.h"

const char *const modes[] = {"threads", NULL};

int serve(const char *mode)
{
    char *fibers[] = {"rocket", "-a", NULL}, *threads[] = {"rocket", NULL};
    if (mode)
        return rocket_main(1, threads);
    need_ring();
    return rocket_main(2, fibers);
}
