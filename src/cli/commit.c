/* Which commit this program was built of, for --version and for reports that people send; see commit.mk. */
#include "cli/verbs.h"

#include <string.h>

const char *lw_commit(void)
{
#ifdef LW_COMMIT
    return LW_COMMIT;
#else
    /* `git archive` puts the commit in its place (.gitattributes), so that a release's archive has it. */
    static const char archived[] = "$Format:%h$";
    return strchr(archived, '$') == NULL ? archived : "unknown";
#endif
}
