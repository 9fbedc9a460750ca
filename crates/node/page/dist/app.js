// Built by the script of the page.
