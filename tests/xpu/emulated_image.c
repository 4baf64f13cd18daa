/* What the emulated device runs for a module: the bytes of a shared object. A native module is one. SPIR-V is
 * not compiled here: clang made a shared object of the same kernels' source beforehand, LW_EMULATED_COMPILED
 * names it, and it answers for a SPIR-V module that is whole and each of whose kernels it has.
 */
#include "emulated.h"

#include <dlfcn.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SPIRV_MAGIC = 0x07230203, HEADER_WORDS = 5, OP_ENTRY_POINT = 15, NAME_WORD = 3, NAME_BYTES = 64 };

static bool file_read(const char *path, emulated_image *out)
{
    FILE *file = fopen(path, "rbe");
    if (file == NULL) return false;
    const long end = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    bool ok = end > 0 && fseek(file, 0, SEEK_SET) == 0 && (out->bytes = malloc((size_t)end)) != NULL;
    if (ok) {
        out->count = (size_t)end;
        ok = fread(out->bytes, 1, out->count, file) == out->count;
    }
    fclose(file);
    return ok;
}

/* Whether library has every kernel that the instructions name: each begins with its length in words and its
 * number. */
static bool has_kernels(void *library, const uint32_t *words, size_t count, char why[128])
{
    uint32_t kernels = 0;
    for (size_t at = HEADER_WORDS; at < count;) {
        const uint32_t length = words[at] >> 16;
        if (length == 0 || length > count - at) {
            snprintf(why, 128, "SPIR-V is cut short at word %zu", at);
            return false;
        }
        if ((words[at] & 0xFFFF) == OP_ENTRY_POINT && length > NAME_WORD) {
            char name[2 * NAME_BYTES];
            const char *kernel = (const char *)&words[at + NAME_WORD];
            snprintf(name, sizeof name, "lw_call_%.*s", NAME_BYTES, kernel);
            if (dlsym(library, name) == NULL) {
                snprintf(why, 128, "%.*s is not in LW_EMULATED_COMPILED", NAME_BYTES, kernel);
                return false;
            }
            kernels++;
        }
        at += length;
    }
    if (kernels == 0) snprintf(why, 128, "SPIR-V without a kernel");
    return kernels > 0;
}

static bool spirv_answer(const uint8_t *bytes, size_t count, emulated_image *out, char why[128])
{
    const char *path = getenv("LW_EMULATED_COMPILED");
    void *library = path != NULL ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    uint32_t *words = malloc(count);
    bool ok = library != NULL && words != NULL && count % sizeof *words == 0;
    if (!ok) {
        snprintf(why, 128, "SPIR-V, which takes LW_EMULATED_COMPILED and whole words");
    } else {
        memcpy(words, bytes, count);
        ok = has_kernels(library, words, count / sizeof *words, why);
        if (ok && !file_read(path, out)) {
            snprintf(why, 128, "LW_EMULATED_COMPILED cannot be read");
            ok = false;
        }
    }
    free(words);
    if (library != NULL) dlclose(library);
    if (ok) lw_emulated.spirv_builds++;
    return ok;
}

/* clang makes of each of its variables a static one of zeros, called KERNEL.VARIABLE. */
uint64_t emulated_local_bytes(const emulated_image *image, const char *kernel)
{
    const Elf64_Ehdr *head = (const void *)image->bytes;
    const Elf64_Shdr *sections = (const void *)(image->bytes + head->e_shoff), *table = sections;
    while (table < sections + head->e_shnum && table->sh_type != SHT_SYMTAB) table++;
    if (table == sections + head->e_shnum) return UINT64_MAX;
    const Elf64_Sym *symbols = (const void *)(image->bytes + table->sh_offset);
    const char *names = (const char *)image->bytes + sections[table->sh_link].sh_offset;
    const size_t length = strlen(kernel);
    uint64_t bytes = 0;
    for (size_t i = 0; i < table->sh_size / sizeof *symbols; i++) {
        const Elf64_Sym *s = &symbols[i];
        const char *name = names + s->st_name;
        if (ELF64_ST_TYPE(s->st_info) != STT_OBJECT || s->st_shndx >= head->e_shnum) continue;
        if (strncmp(name, kernel, length) != 0 || name[length] != '.') continue;
        bytes += sections[s->st_shndx].sh_type == SHT_NOBITS ? s->st_size : 0;
    }
    return bytes;
}

bool emulated_image_make(const lw_ze_module_desc *desc, emulated_image *out, char why[128])
{
    uint32_t magic = 0;
    *out = (emulated_image){ NULL, 0 };
    if (desc->input_bytes >= sizeof magic) memcpy(&magic, desc->input, sizeof magic);
    if (desc->format == LW_ZE_MODULE_FORMAT_IL_SPIRV && magic == SPIRV_MAGIC)
        return spirv_answer(desc->input, desc->input_bytes, out, why);
    snprintf(why, 128, "not a module of this device");
    if (desc->format != LW_ZE_MODULE_FORMAT_NATIVE || memcmp(&magic, "\177ELF", sizeof magic) != 0)
        return false;
    out->bytes = malloc(desc->input_bytes);
    if (out->bytes == NULL) return false;
    out->count = desc->input_bytes;
    memcpy(out->bytes, desc->input, out->count);
    return true;
}
