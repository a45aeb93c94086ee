from choral.program import main

main()
