/* SPDX-License-Identifier: GPL-2.0 */
/* Which connections are recorded: those to and from some ports. */
#ifndef SLOWPATH_PORTS_H
#define SLOWPATH_PORTS_H

#define PORTS 16

/* All of .rodata, which the loader writes; none: all connections. */
struct chosen {
	u16 count;
	u16 ports[PORTS];
};
const volatile struct chosen chosen = {};

MIRRORED(struct, chosen);

static __always_inline int is_chosen(u16 own, u16 other)
{
	int i;

	if (!chosen.count)
		return 1;
	for (i = 0; i < PORTS; i++)
		if (i < chosen.count && (chosen.ports[i] == own || chosen.ports[i] == other))
			return 1;
	return 0;
}

#endif
