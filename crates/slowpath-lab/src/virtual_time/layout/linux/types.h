/* SPDX-License-Identifier: GPL-2.0 */
/* What the laboratory driver's headers use of the kernel's, for clang. */
#ifndef SLOWPATH_LAYOUT_TYPES_H
#define SLOWPATH_LAYOUT_TYPES_H

typedef unsigned char __u8;
typedef signed char __s8;
typedef unsigned short __u16;
typedef short __s16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __le16;
typedef __u32 __le32;
typedef __u64 __le64;

#define BIT(n) (1U << (n))

#endif
