/*
 * The file benchmark of document 004, in rocket's own source: a fiber for each worker, or in the mode "threads" a thread. The
 * contract is in ../README.md.
 */
#include <rocket/rocket_executor.h>
#include <stdbool.h>

/* The benchmark reports a failed cycle by a fiber's return value, which the library drops: it is kept here. */
#define rocket_executor_submit_task(executor, function, context) (rocket_executor_submit_task)(executor, checked, context)
static void *checked(void *context);
#define main rocket_main
#include <benchmark_file_io.c>
#undef main
#undef rocket_executor_submit_task

static bool failed;

static void *checked(void *context)
{
    void *outcome = file_io_func(context);
    failed |= outcome != NULL;
    return outcome;
}

static void fail(const char *what)
{
    fprintf(stderr, "rocket-file: %s\n", what);
    exit(1);
}

static long long now(clockid_t clock)
{
    struct timespec time;
    if (clock_gettime(clock, &time))
        fail(strerror(errno));
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void answer(const params_t *job, bool threads)
{
    long long cpu = now(CLOCK_PROCESS_CPUTIME_ID), start = now(CLOCK_MONOTONIC);
    int outcome = threads ? read_write_with_pthreads(job) : read_write_with_fibers(job);
    long long ns = now(CLOCK_MONOTONIC) - start, cpu_ns = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    if (outcome || failed)
        fail("a worker failed");
    long long cycles = (long long)job->num_threads * job->num_cycles_per_thread;
    printf("{\"operations\":%lld,\"bytes\":%lld,\"ns\":%lld,\"cpu_ns\":%lld}\n", cycles, 2 * cycles * job->num_bytes_per_io, ns, cpu_ns);
    if (fflush(stdout))
        fail(strerror(errno));
}

int main(int count, char **words)
{
    bool threads = count == 3 && !strcmp(words[2], "threads");
    if (count != 2 && !threads) {
        fprintf(stderr, "usage: rocket-file DIRECTORY [threads], then lines of WORKERS CYCLES BYTES\n");
        return 2;
    }
    if (chdir(words[1]))
        fail(strerror(errno));
    params_t job;
    int read;
    while ((read = scanf("%d %d %d", &job.num_threads, &job.num_cycles_per_thread, &job.num_bytes_per_io)) == 3) {
        if (job.num_threads < 1 || job.num_cycles_per_thread < 1 || job.num_bytes_per_io < 1) {
            fprintf(stderr, "rocket-file: WORKERS, CYCLES and BYTES are numbers from 1 to 2147483647\n");
            return 2;
        }
        answer(&job, threads);
    }
    return read == EOF ? 0 : 2;
}
