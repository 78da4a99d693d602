# Installed archives.
