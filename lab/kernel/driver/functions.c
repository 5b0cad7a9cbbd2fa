// SPDX-License-Identifier: GPL-2.0
/*
 * Which functions of TCP a replayed run calls, as a tree: net/ipv4/tcp*.c are built with
 * -finstrument-functions. Nothing is written but for the runs that the script asks for.
 */
#include <linux/kernel.h>
#include "lab.h"
#include "script.h"

/* Deeper calls are counted, not written. */
#define DEEPEST 64

static struct lab_file out;
static bool writing;
static u32 depth;

void __cyg_profile_func_enter(void *function, void *site) __attribute__((no_instrument_function));
void __cyg_profile_func_exit(void *function, void *site) __attribute__((no_instrument_function));

void __cyg_profile_func_enter(void *function, void *site)
{
	char line[DEEPEST * 2 + 160];
	int length;

	if (likely(!writing))
		return;
	if (depth++ >= DEEPEST)
		return;
	length = scnprintf(line, sizeof(line), "%*s%ps\n", 2 * (int)depth, "", function);
	lab_put(&out, line, length);
}

void __cyg_profile_func_exit(void *function, void *site)
{
	if (unlikely(writing) && depth)
		depth--;
}

int lab_functions_open(void)
{
	return lab_open(&out, "functions.txt", SZ_64K);
}

void lab_functions_begin(const struct lab_run_record *record, u64 run)
{
	char line[160];
	int length = scnprintf(line, sizeof(line), "%s run %llu kind %u value %u at %llu\n",
			       record->end ? "server" : "client", run, record->kind, record->value,
			       (u64)record->at);

	lab_put(&out, line, length);
	depth = 0;
	writing = true;
}

void lab_functions_end(void)
{
	writing = false;
}

void lab_functions_close(void)
{
	lab_close(&out);
}

/* For a debugger: the run that is to be looked at begins. */
noinline void slowpath_replay_stop(const struct lab_run_record *record, struct sock *sk)
{
	barrier_data(record);
	barrier_data(sk);
}
