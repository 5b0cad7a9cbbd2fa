// SPDX-License-Identifier: GPL-2.0
/*
 * The run: after everything else of the kernel is ready, and unless a process takes part,
 * before any is started. The kernel ends with it.
 */
#include <linux/init.h>
#include <linux/kthread.h>
#include <linux/reboot.h>
#include <net/tcp.h>
#include <kern_util.h>
#include "lab.h"

struct lab lab;

static void end(int error)
{
	if (error)
		pr_err("slowpath-lab: failed: %d\n", error);
	else
		pr_info("slowpath-lab: done\n");
	uml_exitcode = error ? 1 : 0;
	machine_power_off();
}

static int run(void)
{
	u64 finished = 0;
	int error = lab.plan.flags & LAB_REPLAY ? lab_replay() : lab_run(&finished);

	return error ? error : lab_write_results(finished);
}

static int run_beside_process(void *unused)
{
	lab_wait_for_process();
	end(run());
	return 0;
}

static int __init lab_main(void)
{
	int error;

	error = lab_read_plan();
	if (error == -ENOENT)
		/* This kernel was started for something else. */
		return 0;
	if (!error)
		error = lab_make_hosts();
	if (!error)
		error = lab_make_network();
	if (!error && lab.plan.flags & LAB_THROUGH_PROCESS) {
		struct task_struct *task = kthread_run(run_beside_process, NULL, "slowpath-lab");

		error = PTR_ERR_OR_ZERO(task);
		if (!error)
			return 0;
	}
	end(error ? error : run());
	return 0;
}
late_initcall_sync(lab_main);
