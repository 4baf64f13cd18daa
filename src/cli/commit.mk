# The commit that a program was built of: what git says here, marked where files differ from it. In an archive of
# the tree, which has no git, commit.c says it. Read by the Makefile.
COMMIT := $(if $(wildcard .git),$(shell git describe --always --dirty=-changed --abbrev=12 --exclude='*' 2>/dev/null))
$(OUT)/src/cli/commit.o: private CPP_FLAGS += $(if $(COMMIT),-DLW_COMMIT='"$(COMMIT)"')
$(OUT)/src/cli/commit.o: $(OUT)/.commit
$(OUT)/.commit: FORCE
	@mkdir -p $(@D)
	@echo '$(COMMIT)' | cmp -s - $@ || echo '$(COMMIT)' >$@
