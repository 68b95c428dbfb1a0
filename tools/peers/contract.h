/*
 * Makes a program that has a main function and an address of its own serve as README.md demands. contract.c has the
 * main function, which reads ADDRESS and MODE; calls of bind and listen by the program end there, by the linker
 * (--wrap=bind,--wrap=listen), so that it listens at ADDRESS and says so.
 */
#ifndef PEERS_CONTRACT_H
#define PEERS_CONTRACT_H

#ifdef __cplusplus
extern "C" {
#endif

/* Defined by each peer: its modes, NULL behind the last, and its server, which gets one of them or NULL. */
extern const char *const modes[];
int serve(const char *mode);

/* Exits unless this machine has io_uring, for programs that do not say so themselves. */
void need_ring(void);

#ifdef __cplusplus
}
#endif

#endif
