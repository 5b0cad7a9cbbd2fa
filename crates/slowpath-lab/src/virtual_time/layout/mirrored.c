/* SPDX-License-Identifier: GPL-2.0 */
/* The types of the laboratory driver's headers that wire.rs mirrors, for their BTF; this is not run anywhere. */
#include "plan.h"
#include "script.h"

#define MIRRORED(kind, name) \
	const kind name *mirrored_##name __attribute__((section("mirrored"), used))

/* plan.h */
MIRRORED(struct, lab_plan);
MIRRORED(struct, lab_kind);
MIRRORED(struct, lab_connection);
MIRRORED(struct, lab_flow);
MIRRORED(struct, lab_watch);
MIRRORED(struct, lab_result);
MIRRORED(struct, lab_event);
MIRRORED(struct, lab_packet_head);
MIRRORED(struct, lab_series);
MIRRORED(struct, lab_summary);
MIRRORED(enum, lab_plan_flag);
MIRRORED(enum, lab_kind_flag);
MIRRORED(enum, lab_event_kind);
/* script.h */
MIRRORED(struct, lab_run_record);
MIRRORED(struct, lab_recording);
MIRRORED(struct, lab_script);
MIRRORED(struct, lab_script_end);
MIRRORED(struct, lab_replayed);
MIRRORED(struct, lab_done);
MIRRORED(struct, lab_probe);
MIRRORED(enum, lab_run_kind);
MIRRORED(enum, lab_run_flag);
MIRRORED(enum, lab_replay_status);
MIRRORED(enum, lab_following_decision);
