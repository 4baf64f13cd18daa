"""Asks Level Zero's loader, in a process of its own, what the driver says of the kernels in an image; test_driver.py
is the caller. Prints one JSON object: {kernel: {"lanes", "arguments", "spilled", "private"}}. Where the environment has
ZE_ENABLE_VALIDATION_LAYER, also "refusal", what a null pointer is answered with: the driver alone would crash.

    driver.py IMAGE KERNEL..."""
import ctypes as c
import json
import os
import sys

SUCCESS, MODULE_DESC, KERNEL_DESC, KERNEL_PROPERTIES, CONTEXT_DESC, NATIVE = 0, 0x1B, 0x1D, 0x1E, 0xD, 1


class ModuleDesc(c.Structure):
    _fields_ = [("stype", c.c_uint32), ("next", c.c_void_p), ("format", c.c_uint32), ("bytes", c.c_size_t),
                ("input", c.c_char_p), ("flags", c.c_char_p), ("constants", c.c_void_p)]


class ContextDesc(c.Structure):
    _fields_ = [("stype", c.c_uint32), ("next", c.c_void_p), ("flags", c.c_uint32)]


class KernelDesc(c.Structure):
    _fields_ = [("stype", c.c_uint32), ("next", c.c_void_p), ("flags", c.c_uint32), ("name", c.c_char_p)]


class KernelProperties(c.Structure):
    _fields_ = [("stype", c.c_uint32), ("next", c.c_void_p)] + [(name, c.c_uint32) for name in (
        "arguments", "group_x", "group_y", "group_z", "sub_groups", "lanes", "lanes_max", "sub_groups_max", "local",
        "private", "spilled")] + [("uuid", c.c_uint8 * 32)]


def main():
    loader = c.CDLL("libze_loader.so.1")

    def call(name, *arguments):
        result = getattr(loader, name)(*arguments) & 0xFFFFFFFF
        if result != SUCCESS:
            sys.exit(f"{name} answers 0x{result:08x}")

    driver, device, context, module, one = c.c_void_p(), c.c_void_p(), c.c_void_p(), c.c_void_p(), c.c_uint32(1)
    call("zeInit", 1)
    call("zeDriverGet", c.byref(one), c.byref(driver))
    call("zeDeviceGet", driver, c.byref(one), c.byref(device))
    call("zeContextCreate", driver, c.byref(ContextDesc(CONTEXT_DESC)), c.byref(context))
    with open(sys.argv[1], "rb") as file:
        image = file.read()
    desc = ModuleDesc(MODULE_DESC, None, NATIVE, len(image), image, b"", None)
    call("zeModuleCreate", context, device, c.byref(desc), c.byref(module), None)
    said = {}
    if "ZE_ENABLE_VALIDATION_LAYER" in os.environ:
        said["refusal"] = loader.zeContextCreate(driver, None, None) & 0xFFFFFFFF
    for name in sys.argv[2:]:
        kernel, properties = c.c_void_p(), KernelProperties(KERNEL_PROPERTIES)
        call("zeKernelCreate", module, c.byref(KernelDesc(KERNEL_DESC, None, 0, name.encode())), c.byref(kernel))
        call("zeKernelGetProperties", kernel, c.byref(properties))
        said[name] = {what: getattr(properties, what) for what in ("lanes", "arguments", "spilled", "private")}
    print(json.dumps(said))


if __name__ == "__main__":
    main()
