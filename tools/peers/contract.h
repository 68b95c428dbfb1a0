/*
 * Makes a program with its own main function and address fulfil the contract in README.md. contract.c has the main
 * function, which reads ADDRESS and MODE. The linker redirects the program's calls of bind and listen to it
 * (--wrap=bind,--wrap=listen), so that the program listens at ADDRESS and announces it.
 */
#ifndef PEERS_CONTRACT_H
#define PEERS_CONTRACT_H

#ifdef __cplusplus
extern "C" {
#endif

/* Defined by each peer: its modes, terminated by NULL, and its server, which gets one of them or NULL. */
extern const char *const modes[];
int serve(const char *mode);

/* Exits unless this machine has io_uring, for programs that do not report it themselves. */
void need_ring(void);

#ifdef __cplusplus
}
#endif

#endif
