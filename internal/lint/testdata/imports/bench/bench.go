package bench // another module has its own rules
