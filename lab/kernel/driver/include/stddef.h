/* SPDX-License-Identifier: GPL-2.0 */
/* For slowpath_switch.h. */
#include <linux/stddef.h>
