/* SPDX-License-Identifier: GPL-2.0 */
/* For slowpath_switch.h: the kernel has these types, but not by this file. */
#include <linux/types.h>
#include <linux/limits.h>
#define UINT16_MAX U16_MAX
#define UINT32_MAX U32_MAX
#define UINT64_MAX U64_MAX
