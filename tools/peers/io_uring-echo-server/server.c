/* Runs one of the four servers that the build compiles from one source: the mode's, or without a mode the one that the
 * header chooses. */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../contract.h"

int read_write(int argc, char **argv);
int recv_send(int argc, char **argv);
int poll_read_write(int argc, char **argv);
int poll_recv_send(int argc, char **argv);

const char *const modes[] = {"read-write", "recv-send", "poll-read-write", "poll-recv-send", NULL};
static int (*const servers[])(int, char **) = {read_write, recv_send, poll_read_write, poll_recv_send};

int __real_shutdown(int fd, int how);
int __wrap_shutdown(int fd, int how);

/* The program shuts connections down without closing them, so it could serve only 1,000 in total;
 * this closes them. */
int __wrap_shutdown(int fd, int how)
{
    __real_shutdown(fd, how);
    return close(fd);
}

int serve(const char *mode)
{
    char *arguments[] = {"io_uring-echo-server", "0", NULL};
    size_t chosen = 3;
    for (size_t i = 0; mode && modes[i]; i++)
        if (!strcmp(modes[i], mode))
            chosen = i;
    need_ring();
    return servers[chosen](2, arguments);
}
